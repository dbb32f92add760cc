// Package inside gives packages of this module what package loop has and does not show: package
// loop sets the functions when it is initialized. Their types are package loop's, which cannot be
// named here.
package inside

// TellOr is a Tell that says when f was dropped. to is a loop.Ref and f a func(*loop.Conn). Of f and
// dropped exactly one is called, on the connection's loop, if the error is nil; neither, if not.
var TellOr func(to, f any, dropped func()) error
