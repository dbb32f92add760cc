package main

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	joinWithin = 10 * time.Second // a connection that has not joined a room by then is closed
	pingAfter  = 20 * time.Second // of silence on the wire; a browser answers by itself
	maxPings   = 2                // without an answer, then the peer is dead
	quietFor   = 30 * time.Minute // a user that says nothing for this long is sent away
	stuckFor   = 30 * time.Second // output that does not move for this long ends the connection
)

// Reasons for which the chat closes connections. The peer gets the code and the text.
var (
	errRequest   = &websocket.CloseError{Code: websocket.StatusPolicy, Reason: "not a message of this chat"}
	errQuiet     = &websocket.CloseError{Code: 4000, Reason: "you said nothing for half an hour"}
	errElsewhere = &websocket.CloseError{Code: 4001, Reason: "you have joined from another connection"}
	errDead      = &websocket.CloseError{Code: 4002, Reason: "no answer to pings"}
	errStuck     = &websocket.CloseError{Code: 4003, Reason: "too slow to receive"}
)

// A request is what the page sends. The first one is a join. A later join changes the room.
type request struct {
	Type string `json:"type"` // join or say
	Room string `json:"room"`
	Name string `json:"name"`
	Key  string `json:"key"` // the page's secret, with which it gets its name back
	ID   string `json:"id"`  // what the page calls what it says, to know it again
	Text string `json:"text"`
}

// A session is the handler of one connection. Its methods run on the loop of that connection, one
// at a time, so its fields need no lock.
type session struct {
	chat  *chat
	name  string // "" until the session has one
	room  *room  // nil until the session has joined one
	quiet loop.Timer
}

// accept waits for the handshake: a connection may only fetch the page.
func (ch *chat) accept(c *loop.Conn) loop.Handler {
	s := &session{chat: ch}
	websocket.Of(c).OnOpen = func(*http.Request) error {
		s.quiet = c.AfterFunc(joinWithin, func() { c.CloseWithError(errRequest) })
		c.OnIdle(loop.IdleRead, pingAfter, func(n int) {
			if n > maxPings {
				c.CloseWithError(errDead)
				return
			}
			_ = websocket.Ping(c, nil) // an error is of the connection: OnClose gets it
		})
		c.OnIdle(loop.WriteStalled, stuckFor, func(int) { c.CloseWithError(errStuck) })
		return nil
	}
	return s
}

// OnMessage implements loop.Handler. An error closes the connection.
func (s *session) OnMessage(c *loop.Conn, msg []byte) error {
	var r request
	if err := json.Unmarshal(msg, &r); err != nil || len(r.ID) > maxID {
		return errRequest
	}
	switch {
	case r.Type == "join":
		if err := s.join(c, r); err != nil {
			send(c, event{Type: "refused", Text: err.Error()})
		}
		return nil
	case r.Type == "say" && s.room != nil:
		s.quiet.Reset(quietFor)
		text, err := cleanText(r.Text)
		if err != nil {
			send(c, event{Type: "unsaid", ID: r.ID, Text: err.Error()})
			return nil
		}
		s.chat.say(c, s.room, s.name, r.ID, text)
		return nil
	}
	return errRequest
}

// OnClose implements loop.Handler. Timers and hooks have stopped by themselves.
func (s *session) OnClose(c *loop.Conn, err error) {
	if s.room != nil {
		s.chat.leave(c, s.room)
		c.Log().Info().Str("name", s.name).AnErr("reason", err).Msg("closed")
	}
	if s.name != "" {
		s.chat.release(s.name, c.Ref())
	}
}

// join enters a room. The user reads the error, and may try again.
func (s *session) join(c *loop.Conn, r request) error {
	name, err := goodName(r.Room)
	if err != nil {
		return err
	}
	if s.name == "" {
		user, err := goodName(r.Name)
		if err != nil {
			return err
		}
		// The page may come back before its old connection has ended, which may live on another loop.
		before, err := s.chat.claim(user, r.Key, c.Ref())
		if err != nil {
			return err
		}
		before.CloseWithError(errElsewhere)
		s.name = user
	}
	if s.room != nil && s.room.name == name {
		return nil
	}
	left := s.room
	joined, err := s.chat.join(c, name, s.name)
	if err != nil {
		return err
	}
	s.room = joined
	if left != nil {
		s.chat.leave(c, left)
	}
	s.quiet.Stop()
	s.quiet = c.AfterFunc(quietFor, func() { c.CloseWithError(errQuiet) })
	return nil
}
