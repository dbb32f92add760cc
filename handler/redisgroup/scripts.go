package redisgroup

import (
	"embed"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script is a program that Redis runs. It is sent by its hash, and whole where that is not known.
type script struct {
	*redis.Script
	source string
}

// newScript returns the script in files of lua, one after the other.
func newScript(files ...string) *script {
	var source string
	for _, file := range files {
		text, err := luaFiles.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the program was built without it
		}
		source += string(text)
	}
	return &script{redis.NewScript(source), source}
}

var (
	publishScript = newScript("append", "publish")
	reapScript    = newScript("append", "reap")
	catchUpScript = newScript("append", "catchup")
	historyScript = newScript("append", "history")
	usersScript   = newScript("append", "users")
	leaseScript   = newScript("lease")
	claimScript   = newScript("claim")
	forgetScript  = newScript("forget")
)
