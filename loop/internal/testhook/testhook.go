// Package testhook lets tests, and package looptest, do to package loop what its users cannot. In a
// program nothing sets these variables.
package testhook

import (
	"context"
	"os"

	"github.com/loopwheel/loopwheel/loop/internal/engine"
)

// SocketOf returns the Socket below a *loop.Conn that is open, that of a layer of TLS below this.
// Package loop sets it; it is for that connection's loop.
var SocketOf func(conn any) engine.Socket

// InTurn runs f as a turn of a *loop.Loop, which calls it. Package loop sets it.
var InTurn func(loop any, f func())

// FromEnv makes the environment choose, whenever a server starts: LOOPWHEEL_ENGINE (gnet, epoll or
// net) the default engine, and LOOPWHEEL_CRYPTO_TLS=1 what Server.Debug.CryptoTLS does. What is
// read before the tests begin go test does not see, and its cache would have the results of another
// engine. It is set before any server starts.
var FromEnv bool

// DefaultEngine returns the name of the engine of servers whose Engine is the default, or "" for
// the system's default.
func DefaultEngine() string { return getenv("LOOPWHEEL_ENGINE") }

// CryptoTLS reports whether crypto/tls is to keep all connections.
func CryptoTLS() bool { return getenv("LOOPWHEEL_CRYPTO_TLS") != "" }

func getenv(name string) string {
	if !FromEnv {
		return ""
	}
	return os.Getenv(name)
}

type contextKey struct{}

// WithEngine returns a context that makes loop.Server.Start use e.
func WithEngine(ctx context.Context, e engine.Engine) context.Context {
	return context.WithValue(ctx, contextKey{}, e)
}

// EngineOf returns the engine that ctx carries, or nil.
func EngineOf(ctx context.Context) engine.Engine {
	e, _ := ctx.Value(contextKey{}).(engine.Engine)
	return e
}
