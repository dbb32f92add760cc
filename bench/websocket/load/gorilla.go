//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// event is what demos/chat sends.
type event struct {
	Type  string   `json:"t"`
	Room  string   `json:"room,omitempty"`
	From  string   `json:"from,omitempty"`
	Text  string   `json:"text,omitempty"`
	Names []string `json:"names,omitempty"`
}

// A hub is a chat in the way of gorilla's own chat example: for each connection a goroutine that
// reads and one that writes from a channel. A broadcast is encoded once, as a PreparedMessage.
type hub struct {
	mu    sync.Mutex
	rooms map[string]map[*peer]string
}

type peer struct {
	conn *websocket.Conn
	send chan *websocket.PreparedMessage
}

// serveGorilla serves until it is killed.
func serveGorilla() error {
	h := &hub{rooms: make(map[string]map[*peer]string)}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("page:  http://%s/\n", ln.Addr())
	return (&http.Server{Handler: http.HandlerFunc(h.serve), ReadTimeout: time.Minute}).Serve(ln)
}

func (h *hub) serve(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{WriteBufferPool: &writeBuffers}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	conn.SetReadLimit(2000)
	p := &peer{conn: conn, send: make(chan *websocket.PreparedMessage, 256)}
	go p.write()
	q := r.URL.Query()
	h.run(p, q.Get("nick"), q.Get("room"))
}

var writeBuffers sync.Pool

func (h *hub) run(p *peer, nick, room string) {
	h.join(p, nick, room)
	defer h.leave(p, nick, room)
	for {
		_, msg, err := p.conn.ReadMessage()
		if err != nil {
			return
		}
		h.mu.Lock()
		h.broadcast(room, event{Type: "say", Room: room, From: nick, Text: string(msg)})
		h.mu.Unlock()
	}
}

func (h *hub) join(p *peer, nick, room string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.rooms[room] == nil {
		h.rooms[room] = make(map[*peer]string)
	}
	h.rooms[room][p] = nick
	who := event{Type: "who", Room: room}
	for _, n := range h.rooms[room] {
		who.Names = append(who.Names, n)
	}
	p.send <- prepare(who)
	h.broadcast(room, event{Type: "join", Room: room, From: nick})
}

func (h *hub) leave(p *peer, nick, room string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.rooms[room], p)
	close(p.send)
	h.broadcast(room, event{Type: "leave", Room: room, From: nick})
}

// broadcast drops what a slow member cannot take, as gorilla's example closes it. h.mu is held.
func (h *hub) broadcast(room string, e event) {
	msg := prepare(e)
	for p := range h.rooms[room] {
		select {
		case p.send <- msg:
		default:
			_ = p.conn.Close()
		}
	}
}

func prepare(e event) *websocket.PreparedMessage {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	m, err := websocket.NewPreparedMessage(websocket.TextMessage, b)
	if err != nil {
		panic(err)
	}
	return m
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
