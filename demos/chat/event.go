package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// An event is all that the server ever sends. Browsers get it as JSON; those who came by nc get a
// line of text, see plain.
type event struct {
	Type    string   `json:"t"`
	Room    string   `json:"room,omitempty"`
	From    string   `json:"from,omitempty"`
	To      string   `json:"to,omitempty"`
	Text    string   `json:"text,omitempty"`
	At      int64    `json:"at,omitempty"`      // Unix time in milliseconds
	N       string   `json:"n,omitempty"`       // place in the room, to ask for what follows
	ID      string   `json:"id,omitempty"`      // what the page calls its message
	Old     bool     `json:"old,omitempty"`     // from the history
	Since   bool     `json:"since,omitempty"`   // of who: what follows is what one has missed, not the history
	Asked   bool     `json:"asked,omitempty"`   // somebody wants to read it
	Perhaps bool     `json:"perhaps,omitempty"` // of unsaid: it may have been said
	Names   []string `json:"names,omitempty"`

	Rooms []roomInfo `json:"rooms,omitempty"`
	Also  []string   `json:"also,omitempty"` // other servers of the same chat

	Idle int64   `json:"idle,omitempty"` // milliseconds until one is sent away
	Full int64   `json:"full,omitempty"` // what that starts with
	RTT  float64 `json:"rtt,omitempty"`  // of a ping, in milliseconds
}

// encode returns the event as a message.
func (e event) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event has nothing that cannot be encoded
	}
	return b
}

// send sends e to one connection, on its loop. An error is of the connection, and OnClose gets it.
func send(c *loop.Conn, e event) { _ = c.Send(e.encode()) }

// note sends a text from the server itself.
func note(c *loop.Conn, format string, args ...any) {
	send(c, event{Type: "note", Text: fmt.Sprintf(format, args...)})
}

// unsaid tells one that what it said has reached nobody, or may not have.
func unsaid(c *loop.Conn, e event, err error) {
	send(c, event{Type: "unsaid", ID: e.ID, Text: e.Text, To: err.Error(), Perhaps: errors.Is(err, redisgroup.ErrUncertain)})
}

func now() int64 { return time.Now().UnixMilli() }

// plain is the codec of those who came by nc: it reads lines, and writes events as lines. As it is
// a comparable value without state, a broadcast is turned into text once per loop, not once per
// member.
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
		return fmt.Sprintf("%s<%s> %s", at, e.From, indent(e.Text))
	case "private":
		return fmt.Sprintf("(%s -> %s) %s", e.From, e.To, indent(e.Text))
	case "join", "leave":
		if e.Old {
			return ""
		}
		return fmt.Sprintf("* %s has %s %s", e.From, map[string]string{"join": "joined", "leave": "left"}[e.Type], e.Room)
	case "nick":
		return fmt.Sprintf("* %s is now %s", e.From, e.To)
	case "who":
		if e.Room == "" {
			return "* you are in no room; /join one"
		}
		return fmt.Sprintf("* in %s: %s", e.Room, strings.Join(e.Names, ", "))
	case "rooms":
		var names []string
		for _, r := range e.Rooms {
			names = append(names, fmt.Sprintf("%s (%d)", r.Name, r.Here))
		}
		return "* rooms: " + strings.Join(names, ", ")
	case "gap":
		return "* some of what was said here is lost"
	case "unsaid":
		return fmt.Sprintf("* %s has heard %.40q: %s", map[bool]string{false: "nobody", true: "perhaps nobody"}[e.Perhaps], e.Text, e.To)
	case "hello", "note":
		return "* " + e.Text
	}
	return ""
}

// indent keeps what follows a line break from looking like a line of its own.
func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n    ") }

// clean makes what a user typed harmless for a terminal: no control characters but line breaks,
// which could move the cursor or worse.
func clean(s string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if r == '\n' {
			return r
		}
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD")))
}
