package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// An event is all that the server ever sends. Browsers get it as JSON; those who came by nc get a line of text, see plain.
type event struct {
	Type  string   `json:"t"`
	Room  string   `json:"room,omitempty"`
	From  string   `json:"from,omitempty"`
	To    string   `json:"to,omitempty"`
	Text  string   `json:"text,omitempty"`
	At    int64    `json:"at,omitempty"`  // Unix time in milliseconds
	Old   bool     `json:"old,omitempty"` // from the history
	Names []string `json:"names,omitempty"`

	Idle int64   `json:"idle,omitempty"` // milliseconds until one is kicked
	Full int64   `json:"full,omitempty"` // what that starts with
	RTT  float64 `json:"rtt,omitempty"`  // of a ping, in milliseconds
	Loop int     `json:"loop,omitempty"` // from 1

	View *view `json:"view,omitempty"`
}

// encode returns the event as a message.
func (e event) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event has nothing that cannot be encoded
	}
	return b
}

// send sends e to one connection, on its loop. An error is of the connection, and OnClose tells it.
func send(c *loop.Conn, e event) { _ = c.Send(e.encode()) }

// note sends a text from the server itself.
func note(c *loop.Conn, format string, args ...any) {
	send(c, event{Type: "note", Text: fmt.Sprintf(format, args...)})
}

func now() int64 { return time.Now().UnixMilli() }

// plain is the codec of those who came by nc: it reads lines, and writes events as lines. As it is a comparable
// value without state, a broadcast is turned into text once per loop, not once per member.
type plain struct{ codec.Lines }

// AppendFrame implements codec.Codec.
func (p plain) AppendFrame(dst, frame []byte) ([]byte, error) {
	var e event
	if err := json.Unmarshal(frame, &e); err != nil {
		return dst, err
	}
	line := e.line()
	if line == "" {
		return dst, nil
	}
	return append(append(dst, line...), '\n'), nil
}

// line returns the event as text, or "" if it is for browsers only.
func (e event) line() string {
	at := ""
	if e.Old {
		at = time.UnixMilli(e.At).UTC().Format("[15:04] ")
	}
	switch e.Type {
	case "say":
		return fmt.Sprintf("%s<%s> %s", at, e.From, e.Text)
	case "private":
		return fmt.Sprintf("(%s -> %s) %s", e.From, e.To, e.Text)
	case "join":
		return fmt.Sprintf("* %s has joined %s", e.From, e.Room)
	case "leave":
		return strings.TrimSpace(fmt.Sprintf("* %s has left %s %s", e.From, e.Room, e.Text))
	case "nick":
		return fmt.Sprintf("* %s is now %s", e.From, e.To)
	case "who":
		return fmt.Sprintf("* in %s: %s", e.Room, strings.Join(e.Names, ", "))
	case "rooms":
		return "* rooms: " + strings.Join(e.Names, ", ")
	case "idle":
		return fmt.Sprintf("* you will be kicked in %v unless you say something", time.Duration(e.Idle)*time.Millisecond)
	case "hello", "note", "remind":
		return "* " + e.Text
	}
	return ""
}

// clean makes what a user typed harmless for a terminal: no control characters, which could move the cursor or worse.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
