//go:build linux

package main

import (
	"context"
	"net/http"
	"time"

	"github.com/centrifugal/centrifuge"
	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// serve is one server, of rooms that are ordered or not.
func serve(name, addr string, ordered bool) error {
	if name == "loopwheel" {
		return serveLoopwheel(addr, ordered)
	}
	return serveCentrifuge(addr, ordered)
}

// Both keep as much of an ordered room.
const (
	historySize = 1000
	historyTime = time.Hour
)

// serveLoopwheel delivers messages of plain rooms in Redis' order everywhere, as centrifuge does.
func serveLoopwheel(addr string, ordered bool) error {
	hub, err := redisgroup.Open(context.Background(), redis.NewClient(&redis.Options{Addr: addr}),
		redisgroup.Config{History: historySize, HistoryTime: historyTime, OneOrder: true})
	if err != nil {
		return err
	}
	srv := &loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: &websocket.Codec{Path: "/ws"},
		Accept: func(c *loop.Conn) loop.Handler {
			t := &talker{}
			websocket.Of(c).OnOpen = func(r *http.Request) error {
				name := r.URL.Query().Get("room")
				if ordered {
					o, err := hub.Ordered(name)
					t.say = o.Broadcast
					o.JoinFrom(c, redisgroup.From{}, func(c *loop.Conn, _ redisgroup.Arrival) { _ = c.Send([]byte("joined")) })
					return err
				}
				g, err := hub.Group(name)
				t.say = g.Broadcast
				g.Join(c)
				_ = c.Send([]byte("joined"))
				return err
			}
			return t
		},
	}
	return measure.Serve(srv)
}

type talker struct{ say func(msg []byte) error }

func (t *talker) OnMessage(_ *loop.Conn, msg []byte) error { return t.say(msg) }
func (t *talker) OnClose(*loop.Conn, error)                {}

func serveCentrifuge(addr string, ordered bool) error {
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return err
	}
	shard, err := centrifuge.NewRedisShard(node, centrifuge.RedisShardConfig{Address: addr})
	if err != nil {
		return err
	}
	broker, err := centrifuge.NewRedisBroker(node, centrifuge.RedisBrokerConfig{Shards: []*centrifuge.RedisShard{shard}})
	if err != nil {
		return err
	}
	node.SetBroker(broker)
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{UserID: "u"}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, cb centrifuge.SubscribeCallback) {
			cb(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{EnableRecovery: ordered, EnablePositioning: ordered}}, nil)
		})
		client.OnPublish(func(_ centrifuge.PublishEvent, cb centrifuge.PublishCallback) {
			reply := centrifuge.PublishReply{}
			if ordered {
				reply.Options = centrifuge.PublishOptions{HistorySize: historySize, HistoryTTL: historyTime}
			}
			cb(reply, nil)
		})
	})
	if err := node.Run(); err != nil {
		return err
	}
	http.Handle("/ws", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{UseWriteBufferPool: true}))
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	return (&http.Server{ReadTimeout: time.Minute}).Serve(ln)
}
