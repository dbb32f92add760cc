//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package loop_test

import "context"

// withoutPollers has nothing to do: there are none here.
func withoutPollers(ctx context.Context) context.Context { return ctx }
