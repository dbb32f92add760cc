// Package aof keeps an append-only file of commands, as redis-server does: what was said is written
// down, and said again at the next start. It knows nothing of what commands mean.
//
// A Log is a base file, which a rewrite has made, and the files that were appended to since; a
// manifest says which those are. The owner's goroutine appends to memory, and a goroutine of the
// Log's own writes and syncs, so that a slow disk holds up nobody who need not wait for it.
//
//	Append ── buffer ──> write ──> fsync ──> Synced
//	(a loop)             (the Log's goroutine)
package aof
