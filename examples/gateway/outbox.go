package main

import (
	"errors"
	"sync"
)

// How many messages are kept for one device, and for how many devices. Without limits, devices that
// never come back would take all memory.
const (
	maxKept = 100
	maxAway = 10_000
)

var errFull = errors.New("too many messages are kept already")

// An outbox keeps messages for devices until they have been delivered, the oldest first. Any
// goroutine may call its methods. The messages are in memory and end with the process: where they
// must not, put a database here, and ask it by loop.Offload, since loops must not wait.
type outbox struct {
	mu   sync.Mutex
	kept map[string][]*[]byte // by device
}

func (o *outbox) add(device string, payload []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	messages := o.kept[device]
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
