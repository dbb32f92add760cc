package loop_test

import "github.com/loopwheel/loopwheel/loop/internal/testhook"

func init() { testhook.FromEnv = true }
