package redisgroup

import (
	"embed"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

//go:embed lua/*.lua
var lua embed.FS

var (
	publishScript = onredis.NewScript(lua, "append", "publish")
	reapScript    = onredis.NewScript(lua, "append", "reap")
	catchUpScript = onredis.NewScript(lua, "append", "catchup")
	historyScript = onredis.NewScript(lua, "append", "history")
	usersScript   = onredis.NewScript(lua, "append", "users")
	leaseScript   = onredis.NewScript(lua, "lease")
	claimScript   = onredis.NewScript(lua, "claim")
	forgetScript  = onredis.NewScript(lua, "forget")
)
