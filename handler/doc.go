// Package handler has building blocks for servers on package loop, so that you do not have to write
// them.
//
//	Chain, Middleware  wrap layers around the handlers of a server
//	Log                logs each open, close with its reason, and message
//	Limit              messages per second: excess messages are dropped or close the connection
//	Heartbeat          pings silent peers and finds dead ones
//	Shared             one stateless handler for all connections
//	Typed, JSON        values of your type instead of frames, both ways
//	Replies            replies in the order of the requests, wherever and whenever they are made
//	Registry           finds connections by a key: a device by its number, a user by the login
//	Group              a room or topic: connections on all loops that get the same messages
//	Actor, Spawn       a room, device or match with its own state, on a loop, reached by messages
//	Ask                asks an actor a question from a loop, with a deadline; calls back
//	AskWait            asks an actor from a goroutine, and blocks
//	AskConnWait        asks a connection from a goroutine, and blocks
//	Link               a connection that is kept open: redialed with growing back-off
//	Calls, Pipeline    requests over one connection, with deadlines, answered by id or in order
//	Pool               calls over several Links
//
// Chain wraps middlewares around Server.Accept. They are plain structs; zero fields mean defaults,
// unless a field's comment says that it must be set. Typed is a plain struct, too. An actor is made
// by Spawn, and all else by a New function, with its loop or connection, if it belongs to one, and
// its Config, if it has settings. Invalid settings are a programming error and panic at once.
//
// Package loop's one rule holds here: code that uses a *loop.Conn or an *Actor runs on its loop,
// and must not touch anything of another loop. Loops talk to each other through a Group (Broadcast,
// Each, Len), a Registry (Get, Len, All), an ActorRef (also by Ask), Replies.RunOn, and package
// loop's Ref and Loop.Post. Their messages keep their order: each loop has one mailbox.
package handler
