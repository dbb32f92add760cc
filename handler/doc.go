// Package handler has what most servers need on top of package loop, and nobody should write again.
//
//	Chain, Middleware   put layers around the handlers of a server
//	Log                 a line for each open, close and its reason, and message
//	Limit               messages per second: what is too much closes the connection, or is dropped
//	Heartbeat           pings when a peer is silent, and finds dead ones
//	Shared              one handler without state for all connections
//	Typed, JSON         values of your type in place of frames, both ways
//	Replies             replies in the order of the requests, wherever and whenever they are made
//	Registry            connections by a key: a device by its number, a user by the login
//	Group               a room or topic: connections on all loops that get the same messages
//	Actor, Spawn        a room, device or match with state of its own, on a loop, reached by messages
//	Ask, AskWait        a question to an actor, with a deadline, from a loop or from a goroutine
//	AskConn             a question to a connection, from a goroutine, which hears when it has gone
//	Redial, Link        a connection that is kept: dialled again when it ends, later and later
//	Calls, Pipeline     requests over one connection, with deadlines, answered by id or in order
//	Pool                calls over several connections that are kept
//
// Middlewares are put around Server.Accept by Chain. They are plain structs whose zero fields mean
// something sensible. Settings that make no sense are a programmer's error, and panic at the start.
//
// Package loop's one rule holds here: what has a *loop.Conn or an *Actor in its hands runs on the
// loop of that, and may touch nothing of another loop. Four things are for any goroutine, and are
// how loops talk to each other: a Group (Broadcast, Each, Len), a Registry (Get, Len, All), an
// ActorRef, and package loop's Ref. Their messages keep their order: each loop has one queue.
package handler
