// Package redisgroup provides rooms whose members are connected to several processes, on any
// machines: handler.Group across all of them, through Redis 7, Redis Cluster or Valkey.
//
//	hub, err := redisgroup.Open(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), redisgroup.Config{})
//
//	Group      a room like handler.Group; nothing is stored
//	Ordered    a room with one order, numbers, a history, and presence
//	Bind, Send, Kick   a user's connections, on all machines
//	Claim      names that are unique across all processes
//
// Each process opens one Hub. It subscribes to each room that has a member there, and posts a
// message once to each loop, however many members there are, like handler.Group. The Hub's few
// goroutines talk to Redis; loops never wait for it. While Redis is unreachable, messages are
// queued, within limits, and members of the same process still get each other's messages in plain
// rooms.
//
// docs/rooms.md lists the guarantees, what happens when something fails, and what a room costs.
package redisgroup
