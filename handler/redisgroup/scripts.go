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

var (
	publishScript = redis.NewScript(appendLua + publishLua)
	reapScript    = redis.NewScript(appendLua + reapLua)
	catchUpScript = redis.NewScript(appendLua + catchUpLua)
	historyScript = redis.NewScript(appendLua + historyLua)
	leaseScript   = redis.NewScript(leaseLua)
	claimScript   = redis.NewScript(claimLua)
	forgetScript  = redis.NewScript(forgetLua)
)
