// Package redisgroup provides rooms whose members are connected to several processes, on any number
// of machines. It extends handler.Group to all of them through Redis (6.2 or later), Redis Cluster
// (7 or later) or Valkey.
//
//	hub, err := redisgroup.Open(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), redisgroup.Config{})
//
//	Group              a room like handler.Group; it stores no messages
//	Ordered            a room with one order, numbered messages, a history, and presence
//	Bind, Send, Kick   a user's connections, in any process
//	Claim              names that are unique across all processes
//
// Each process opens one Hub. The Hub subscribes to each room that has a member in the process. A
// message crosses to each loop once, regardless of the number of members, as in handler.Group. The
// Hub's own goroutines communicate with Redis; loops never wait for it. While Redis is unreachable,
// messages are queued within bounds, and in plain rooms members of the same process still receive
// each other's messages, unless Config.OneOrder is set.
//
// docs/rooms.md describes the guarantees, the behaviour in each kind of failure, and the cost of a
// room.
package redisgroup
