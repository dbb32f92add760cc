// Package inspect has the switch of a test-only check: whether each loop looks, at the end of each
// of its turns, for what must not be. Tests switch it on before they start a server; programs
// cannot.
package inspect

// Turns switches the check on. It must not change while a loop runs.
var Turns bool
