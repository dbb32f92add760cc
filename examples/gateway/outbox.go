package main

import (
	"encoding/gob"
	"errors"
	"io"
	"sync"
)

// How many messages are kept for one device, and for how many devices. Without limits, devices that
// never come back would take all memory.
const (
	maxKept = 100
	maxAway = 10_000
)

var (
	errFull   = errors.New("too many messages are kept already")
	errMoving = errors.New("another process is taking over")
)

// An outbox keeps messages for devices until they have been delivered, the oldest first. Any
// goroutine may call its methods. The messages are in memory: the next process gets them, but a
// crash takes them. Where it must not, put a database here, and ask it by loop.Offload, since loops
// must not wait.
type outbox struct {
	mu     sync.Mutex
	kept   map[string][]*[]byte // by device
	frozen bool                 // they are on their way to the next process
}

func (o *outbox) add(device string, payload []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	messages := o.kept[device]
	if o.frozen {
		return errMoving
	}
	if len(messages) == maxKept || messages == nil && len(o.kept) == maxAway {
		return errFull
	}
	if o.kept == nil {
		o.kept = make(map[string][]*[]byte)
	}
	o.kept[device] = append(messages, &payload)
	return nil
}

// oldest returns the next message for a device, which stays, or nil.
func (o *outbox) oldest(device string) *[]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.kept[device]) == 0 {
		return nil
	}
	return o.kept[device][0]
}

// remove removes a message that was delivered. It may be gone already: while a device changes from
// one connection to another, both may deliver it.
func (o *outbox) remove(device string, message *[]byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if messages := o.kept[device]; len(messages) > 1 && messages[0] == message {
		o.kept[device] = messages[1:]
	} else if len(messages) == 1 && messages[0] == message {
		delete(o.kept, device)
	}
}

// Freeze, Save, Thaw and Restore implement handover.State: a message that was acknowledged moves to
// the next process. One that comes while it moves is refused, and its sender tries again there.

func (g *gateway) Freeze() error {
	g.outbox.setFrozen(true)
	return nil
}

func (g *gateway) Thaw() {
	g.outbox.setFrozen(false)
	g.moved.Store(false)
}

func (g *gateway) Save(w io.Writer) error {
	g.outbox.mu.Lock()
	defer g.outbox.mu.Unlock()
	return gob.NewEncoder(w).Encode(g.outbox.kept)
}

func (g *gateway) Restore(r io.Reader) error {
	g.outbox.mu.Lock()
	defer g.outbox.mu.Unlock()
	return gob.NewDecoder(r).Decode(&g.outbox.kept)
}

func (o *outbox) setFrozen(on bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.frozen = on
}
