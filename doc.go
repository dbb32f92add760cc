// Package loopwheel is the root of a framework for custom protocol servers on event loops, each of
// which owns a timing wheel. It has no code of its own; start with the packages
//
//   - [github.com/loopwheel/loopwheel/loop]: servers, loops, connections, timers, idle hooks
//   - [github.com/loopwheel/loopwheel/codec]: how bytes become messages, and messages bytes
//   - [github.com/loopwheel/loopwheel/handler]: what most servers need on top of that
//   - [github.com/loopwheel/loopwheel/timing]: the wheel by itself
//
// and with the program in examples/echo.
package loopwheel
