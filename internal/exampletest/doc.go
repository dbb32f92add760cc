// Package exampletest has the tests of the examples as programs: that they can be copied, what
// they say and how they end, the gateway's restart, the chat in a browser. The tests that are
// part of the examples stand beside them and import nothing of package internal, as they are
// copied, too.
package exampletest
