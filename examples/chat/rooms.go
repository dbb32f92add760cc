package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

const (
	maxRooms = 1000
	maxName  = 20   // characters (code points) of a name, of a user or a room
	maxText  = 2000 // characters of what one says at once; the page knows it
	maxID    = 40   // bytes
	remember = 50   // messages of a room that a new member gets
	keep     = 100  // messages that wait for a slow member; one more drops the oldest
)

// Reasons for which a user cannot join. The page shows them.
var (
	errName  = errors.New("a name has 1 to 20 letters, digits, - or _")
	errTaken = errors.New("somebody else has this name")
	errRooms = errors.New("there are too many rooms")
)

// An event is what the chat sends.
type event struct {
	Type  string   `json:"type"` // joined, in, out, say, unsaid or refused
	Room  string   `json:"room,omitempty"`
	From  string   `json:"from,omitempty"`
	Text  string   `json:"text,omitempty"`
	ID    string   `json:"id,omitempty"`    // of say and unsaid: what the page calls it
	At    int64    `json:"at,omitempty"`    // of say: Unix time in milliseconds
	N     uint64   `json:"n,omitempty"`     // of say: its number in the room, from 1; of joined: the last one
	Epoch string   `json:"epoch,omitempty"` // of joined: numbers of another epoch say nothing
	Names []string `json:"names,omitempty"` // of joined: the members
}

func (e event) encode() []byte {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // an event has nothing that cannot be encoded
	}
	return b
}

// send sends an event to one connection, on its loop. An error ends the connection, and OnClose
// gets it.
func send(c *loop.Conn, e event) { _ = c.Send(e.encode()) }

// A chat is what the connections of all loops share. One lock is enough: it is held for as long as
// a message takes to be posted to the loops, and not while it is sent.
type chat struct {
	epoch string // of this process

	mu     sync.Mutex
	rooms  map[string]*room
	owners map[string]owner // of names in lower case
}

// A room is a group of connections on all loops, with a history. The lock of the chat is held while
// the history grows and the message is broadcast, and while a member joins and gets the history. So
// each member sees each message once, in one order.
type room struct {
	name    string
	group   *handler.Group
	members map[loop.Ref]string // their names
	last    uint64              // number of the last message
	history [][]byte            // encoded, the oldest first
}

// An owner is the connection that has a name.
type owner struct {
	key string
	ref loop.Ref
}

func newChat() *chat {
	return &chat{epoch: rand.Text(), rooms: make(map[string]*room), owners: make(map[string]owner)}
}

// claim gives a name to a connection. A page that has lost its connection gets its name back by its
// key: before is the old connection, which has to go.
func (ch *chat) claim(name, key string, ref loop.Ref) (before loop.Ref, err error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	name = strings.ToLower(name)
	o, taken := ch.owners[name]
	if taken && (key == "" || key != o.key) {
		return loop.Ref{}, errTaken
	}
	ch.owners[name] = owner{key, ref}
	return o.ref, nil
}

// release gives a name back, if it has not gone to another connection meanwhile.
func (ch *chat) release(name string, ref loop.Ref) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if name = strings.ToLower(name); ch.owners[name].ref == ref {
		delete(ch.owners, name)
	}
}

// join makes c a member of a room, sends c the members and the history, and tells the others.
func (ch *chat) join(c *loop.Conn, name, user string) (*room, error) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	r := ch.rooms[name]
	if r == nil {
		if len(ch.rooms) >= maxRooms {
			maps.DeleteFunc(ch.rooms, func(_ string, r *room) bool { return len(r.members) == 0 })
		}
		if len(ch.rooms) >= maxRooms {
			return nil, errRooms
		}
		r = &room{name: name, members: make(map[loop.Ref]string), group: handler.NewGroup(handler.GroupConfig{Backlog: keep})}
		ch.rooms[name] = r
	}
	if !r.has(user) { // unless an old connection of the same page is still a member
		r.broadcast(c, event{Type: "in", From: user})
	}
	r.members[c.Ref()] = user
	r.group.Join(c) // what is broadcast from here on comes after what is sent here
	send(c, event{Type: "joined", Room: name, From: user, Names: r.names(), N: r.last, Epoch: ch.epoch})
	for _, msg := range r.history {
		_ = c.Send(msg)
	}
	return r, nil
}

// leave ends c's membership, and tells the others.
func (ch *chat) leave(c *loop.Conn, r *room) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	r.group.Leave(c)
	user := r.members[c.Ref()]
	delete(r.members, c.Ref())
	if !r.has(user) {
		r.broadcast(c, event{Type: "out", From: user})
	}
}

// say broadcasts a message, also to the member that has said it, and remembers it.
func (ch *chat) say(c *loop.Conn, r *room, user, id, text string) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	r.last++
	msg := r.broadcast(c, event{Type: "say", From: user, ID: id, Text: text, At: time.Now().UnixMilli(), N: r.last})
	if len(r.history) == remember {
		r.history = slices.Delete(r.history, 0, 1)
	}
	r.history = append(r.history, msg)
}

// broadcast sends an event to all members, and returns it encoded. The members of a loop that is
// too busy to take it miss it, as the numbers show.
func (r *room) broadcast(c *loop.Conn, e event) []byte {
	msg := e.encode()
	if err := r.group.Broadcast(msg); err != nil {
		c.Log().Warn().Err(err).Str("room", r.name).Msg("a loop was not reached")
	}
	return msg
}

func (r *room) has(user string) bool {
	for _, name := range r.members {
		if name == user {
			return true
		}
	}
	return false
}

// names returns the names of the members, sorted, each once.
func (r *room) names() []string {
	return slices.Compact(slices.Sorted(maps.Values(r.members)))
}

// goodName returns a name in one of the forms that look the same.
func goodName(name string) (string, error) {
	name = norm.NFC.String(name)
	odd := func(c rune) bool {
		return !unicode.IsLetter(c) && !unicode.IsMark(c) && !unicode.IsDigit(c) && c != '-' && c != '_'
	}
	first, _ := utf8.DecodeRuneInString(name)
	if n := utf8.RuneCountInString(name); n == 0 || n > maxName || unicode.IsMark(first) || strings.ContainsFunc(name, odd) {
		return "", errName
	}
	return name, nil
}

// cleanText removes control characters. The user reads the error.
func cleanText(text string) (string, error) {
	text = strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' || unicode.Is(unicode.Bidi_Control, c) {
			return -1
		}
		return c
	}, text))
	if n := utf8.RuneCountInString(text); n == 0 || n > maxText {
		return "", fmt.Errorf("a message has 1 to %d characters, this one has %d", maxText, n)
	}
	return text, nil
}
