package main

import (
	"encoding/json"
	"hash/fnv"
	"net/http"
	"slices"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	tick       = 50 * time.Millisecond
	keepFor    = 30 * time.Second // the place of a player whose connection is lost
	joinWithin = 10 * time.Second
	pingAfter  = 10 * time.Second // of silence; a browser answers by itself
	maxPlayers = 10
	maxName    = 20
	size       = 1000 // of the field, in both directions
	step       = 10   // of a player, in a tick
)

// Reasons for which the game closes connections. The peer gets the code and the text.
var (
	errRequest   = &websocket.CloseError{Code: websocket.StatusPolicy, Reason: "not a message of this game"}
	errFull      = &websocket.CloseError{Code: 4000, Reason: "this match is full"}
	errElsewhere = &websocket.CloseError{Code: 4001, Reason: "you are playing on another connection"}
	errDead      = &websocket.CloseError{Code: 4002, Reason: "no answer to a ping"}
)

// A request is what the page sends. The first one is a join.
type request struct {
	Type  string `json:"type"` // join or steer
	Match string `json:"match"`
	Name  string `json:"name"`
	Key   string `json:"key"` // the page's secret, with which it finds its place again
	DX    int    `json:"dx"`
	DY    int    `json:"dy"`
}

// A game has no state of its own: the name of a match says on which loop it lives.
type game struct{ server *loop.Server }

// matches are those of each loop, by name.
var matches = loop.NewLocal(func(*loop.Loop) map[string]*match { return make(map[string]*match) })

// A match belongs to its loop, where its players are, too.
type match struct {
	name    string
	loop    *loop.Loop
	players []*player
	ticks   loop.Timer
}

// A player stays in the match for a while without a connection.
type player struct {
	Name   string `json:"name"`
	X      int    `json:"x"`
	Y      int    `json:"y"`
	Away   bool   `json:"away,omitempty"`
	key    string
	dx, dy int
	conn   *loop.Conn // nil: away
	until  loop.Timer // when the place is given up
}

// A session is the handler of one connection.
type session struct {
	game   *game
	match  *match // nil until it is on the loop of the match
	player *player
	wait   loop.Timer
}

// accept waits for the handshake: a connection may only fetch the page.
func (g *game) accept(c *loop.Conn) loop.Handler {
	s := &session{game: g}
	websocket.Of(c).OnOpen = func(*http.Request) error {
		s.wait = c.AfterFunc(joinWithin, func() { c.CloseWithError(errRequest) })
		c.OnIdle(loop.IdleRead, pingAfter, func(n int) {
			if n > 1 {
				c.CloseWithError(errDead)
				return
			}
			_ = websocket.Ping(c, nil) // an error is of the connection: OnClose gets it
		})
		return nil
	}
	return s
}

// OnMessage implements loop.Handler. An error closes the connection.
func (s *session) OnMessage(c *loop.Conn, msg []byte) error {
	var r request
	switch err := json.Unmarshal(msg, &r); {
	case err != nil:
		return errRequest
	case r.Type == "steer" && s.player != nil:
		s.player.dx, s.player.dy = min(max(r.DX, -1), 1), min(max(r.DY, -1), 1)
		return nil
	case r.Type != "join" || s.player != nil || r.Match == "" || r.Name == "" || r.Key == "" || len(r.Match) > maxName || len(r.Name) > maxName:
		return errRequest
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(r.Match)) // it never fails
	loops := s.game.server.Loops()
	return c.MoveTo(loops[h.Sum32()%uint32(len(loops))], func(c *loop.Conn) { s.join(c, r) })
}

// join runs on the loop of the match.
func (s *session) join(c *loop.Conn, r request) {
	s.wait.Stop()
	all := *matches.Get(c.Loop())
	m := all[r.Match]
	if m == nil {
		m = &match{name: r.Match, loop: c.Loop()}
		m.ticks = m.loop.Every(tick, m.tick)
		all[r.Match] = m
	}
	i := slices.IndexFunc(m.players, func(p *player) bool { return p.key == r.Key })
	switch {
	case i >= 0:
		s.player = m.players[i]
	case len(m.players) == maxPlayers:
		c.CloseWithError(errFull)
		return
	default:
		n := len(m.players)
		s.player = &player{Name: r.Name, X: 100 + 80*n, Y: size / 2, key: r.Key}
		m.players = append(m.players, s.player)
	}
	s.match = m
	p := s.player
	p.until.Stop()
	if p.conn != nil {
		p.conn.CloseWithError(errElsewhere) // on this loop, too
	}
	p.conn, p.Away = c, false
}

// OnClose implements loop.Handler.
func (s *session) OnClose(c *loop.Conn, _ error) {
	p := s.player
	if p == nil || p.conn != c {
		return
	}
	p.conn, p.Away, p.dx, p.dy = nil, true, 0, 0
	p.until = s.match.loop.AfterFunc(keepFor, func() { s.match.remove(p) })
}

// remove ends a match with its last player.
func (m *match) remove(p *player) {
	m.players = slices.DeleteFunc(m.players, func(other *player) bool { return other == p })
	if len(m.players) == 0 {
		m.ticks.Stop()
		delete(*matches.Get(m.loop), m.name)
	}
}

// tick moves the players, and shows all of them the field.
func (m *match) tick() {
	for _, p := range m.players {
		p.X = min(max(p.X+step*p.dx, 0), size)
		p.Y = min(max(p.Y+step*p.dy, 0), size)
	}
	field, err := json.Marshal(m.players)
	if err != nil {
		panic(err) // a player has nothing that cannot be encoded
	}
	for _, p := range m.players {
		if p.conn != nil {
			_ = p.conn.Send(field) // an error ends the connection: OnClose gets it
		}
	}
}
