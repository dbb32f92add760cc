//go:build linux

package main

import (
	"net/http"
	"sync"
	"time"

	gorilla "github.com/gorilla/websocket"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// serveGroup has a handler.Group for each room.
func serveGroup() error {
	var mu sync.Mutex
	rooms := make(map[string]*handler.Group)
	return measure.Serve(&loop.Server{
		Addr:  "tcp://127.0.0.1:0",
		Codec: &websocket.Codec{Path: "/ws"},
		Accept: func(c *loop.Conn) loop.Handler {
			t := &talker{}
			websocket.Of(c).OnOpen = func(r *http.Request) error {
				mu.Lock()
				defer mu.Unlock()
				name := r.URL.Query().Get("room")
				if rooms[name] == nil {
					rooms[name] = &handler.Group{}
				}
				t.say = rooms[name].Broadcast
				rooms[name].Join(c)
				return c.Send([]byte("joined"))
			}
			return t
		},
	})
}

// A hub is a chat in the way of gorilla's own example: for each connection a goroutine that reads,
// and one that writes from a channel. A broadcast is encoded once, as a PreparedMessage.
type hub struct {
	upgrader gorilla.Upgrader
	mu       sync.Mutex
	rooms    map[string]map[*peer]struct{}
}

type peer struct {
	conn *gorilla.Conn
	send chan *gorilla.PreparedMessage
}

func serveGorilla() error {
	h := &hub{upgrader: gorilla.Upgrader{WriteBufferPool: &sync.Pool{}}, rooms: make(map[string]map[*peer]struct{})}
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	return (&http.Server{Handler: http.HandlerFunc(h.serve), ReadTimeout: time.Minute}).Serve(ln)
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	conn, err := h.upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	conn.SetReadLimit(2000)
	p, room := &peer{conn, make(chan *gorilla.PreparedMessage, 256)}, r.URL.Query().Get("room")
	go p.write()
	h.mu.Lock()
	if h.rooms[room] == nil {
		h.rooms[room] = make(map[*peer]struct{})
	}
	h.rooms[room][p] = struct{}{}
	h.mu.Unlock()
	err = p.tell("joined")
	for err == nil {
		var msg []byte
		if _, msg, err = conn.ReadMessage(); err == nil {
			err = h.broadcast(room, msg)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rooms[room], p)
	close(p.send)
}

func (p *peer) tell(text string) error {
	msg, err := gorilla.NewPreparedMessage(gorilla.TextMessage, []byte(text))
	p.send <- msg
	return err
}

// broadcast closes a member that is slow, as gorilla's example does.
func (h *hub) broadcast(room string, text []byte) error {
	msg, err := gorilla.NewPreparedMessage(gorilla.TextMessage, text)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for p := range h.rooms[room] {
		select {
		case p.send <- msg:
		default:
			_ = p.conn.Close()
		}
	}
	return nil
}

func (p *peer) write() {
	for m := range p.send {
		if p.conn.WritePreparedMessage(m) != nil {
			break
		}
	}
	_ = p.conn.Close()
	for range p.send { // until the reader has left
	}
}
