// Package store is the data of demos/kv, and the commands on it: what is left of a Redis when
// network, files and clients are taken away. A DB belongs to one goroutine and has no lock. It is
// given commands as arguments and appends replies, so tests, the append-only file and loops all use
// it alike.
//
// To add a command write a function that takes a *Call, and put it into a table, as at the top of
// strings.go.
package store
