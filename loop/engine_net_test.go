//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package loop_test

import "context"

// withoutDoors has nothing to do: there are none here.
func withoutDoors(ctx context.Context) context.Context { return ctx }
