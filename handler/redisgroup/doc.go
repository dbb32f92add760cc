// Package redisgroup has rooms whose members are connected to several processes, on any machines:
// handler.Group, spanning all of them by way of Redis 7, Redis Cluster or Valkey.
//
//	hub, err := redisgroup.Open(ctx, redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"}), redisgroup.Config{})
//
//	Group      a room as handler.Group is; nothing is kept
//	Ordered    a room with one order, numbers, a history, and presence
//	Bind, Send, Kick   a user's connections, wherever they are
//	Claim      names that are unique over all processes
//
// Each process opens one Hub. It has a subscription for each room that has a member there, and a
// message crosses to each loop once, however many members there are, as in handler.Group. The Hub's
// few goroutines talk to Redis; loops never wait for it. While Redis is away messages queue up,
// within bounds, and members of this process go on hearing each other in plain rooms.
//
// docs/rooms.md says what is promised, what happens when something fails, and what a room
// costs.
package redisgroup
