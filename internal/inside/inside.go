// Package inside gives packages of this module what package loop has and does not show: package
// loop sets the functions when it is initialized. Their types are package loop's, which cannot be
// named here: a conn is a *loop.Conn, on whose loop they are called.
package inside

import "time"

// TellOr is a Tell that says when f was dropped. to is a loop.Ref and f a func(*loop.Conn). Of f and
// dropped exactly one is called, on the connection's loop, if the error is nil; neither, if not.
var TellOr func(to, f any, dropped func()) error

// Check panics, as methods of package loop do, if it is called on another goroutine than that of a
// *loop.Loop, and calls are looked at.
var Check func(l any, method string)

// OwesReplies and AwaitsAnswers keep a connection open in a drain, and where it is in a handover:
// for each call with true there is one with false. One that only owes replies is not read meanwhile.
var OwesReplies, AwaitsAnswers func(conn any, on bool)

// OnClosing sets the function that a connection calls with the reason when its close begins. Each
// connection has one.
var OnClosing func(conn any, f func(err error))

// Input reports whether input of a connection waits that is to be delivered soon, and when some was
// last read, by the loop's clock.
var Input func(conn any) (waits bool, read time.Duration)

// Unread returns for how long a connection was not read in all, by no fault of its peer: the loop
// was away, or reading was paused. The first call begins to measure the latter.
var Unread func(conn any) time.Duration
