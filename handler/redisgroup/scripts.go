package redisgroup

import (
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed lua/append.lua
	appendLua string
	//go:embed lua/publish.lua
	publishLua string
	//go:embed lua/catchup.lua
	catchUpLua string
	//go:embed lua/history.lua
	historyLua string
	//go:embed lua/lease.lua
	leaseLua string
	//go:embed lua/reap.lua
	reapLua string
	//go:embed lua/claim.lua
	claimLua string
	//go:embed lua/forget.lua
	forgetLua string
)

// A script is a program that Redis runs. It is sent by its hash, and whole where that is not known.
type script struct {
	*redis.Script
	source string
}

func newScript(source string) *script { return &script{redis.NewScript(source), source} }

var (
	publishScript = newScript(appendLua + publishLua)
	reapScript    = newScript(appendLua + reapLua)
	catchUpScript = newScript(appendLua + catchUpLua)
	historyScript = newScript(appendLua + historyLua)
	leaseScript   = newScript(leaseLua)
	claimScript   = newScript(claimLua)
	forgetScript  = newScript(forgetLua)
)
