package store

import "strings"

// An Event is a set of classes of keyspace events, of notify-keyspace-events.
type Event uint16

// The classes, and how they are told: to the channel of the key, of the event, or both.
const (
	EventKeyspace Event = 1 << iota
	EventKeyevent
	EventGeneric
	EventString
	EventList
	EventSet
	EventHash
	EventZset
	EventExpired
	EventEvicted
	EventStream
	EventMiss
	EventModule
	EventNew

	EventAll = EventGeneric | EventString | EventList | EventSet | EventHash | EventZset |
		EventExpired | EventEvicted | EventStream | EventModule
)

var eventLetters = []struct {
	letter byte
	event  Event
}{
	{'A', EventAll}, {'g', EventGeneric}, {'$', EventString}, {'l', EventList}, {'s', EventSet},
	{'h', EventHash}, {'z', EventZset}, {'x', EventExpired}, {'e', EventEvicted}, {'K', EventKeyspace},
	{'E', EventKeyevent}, {'t', EventStream}, {'d', EventModule}, {'m', EventMiss}, {'n', EventNew},
}

// ParseEvents reads classes as CONFIG SET notify-keyspace-events gives them.
func ParseEvents(letters string) (Event, bool) {
	var e Event
next:
	for i := range len(letters) {
		for _, l := range eventLetters {
			if l.letter == letters[i] {
				e |= l.event
				continue next
			}
		}
		return 0, false
	}
	return e, true
}

// String is the reverse of ParseEvents.
func (e Event) String() string {
	var b strings.Builder
	for _, l := range eventLetters {
		if l.event == e&l.event {
			b.WriteByte(l.letter)
			if l.event == EventAll {
				e &^= EventAll
			}
		}
	}
	return b.String()
}

// notify tells an event.
func (db *DB) notify(class Event, event, key string) {
	if db.Events&class != 0 && db.Notify != nil {
		db.Notify(class, event, key)
	}
}

// A Watch is what WATCH leaves behind on keys of one DB. It belongs to the DB's goroutine.
type Watch struct {
	Touched bool // a key has changed
	keys    map[string]bool
}

// Watch makes w notice when a key changes.
func (db *DB) Watch(w *Watch, key []byte) {
	db.begin()
	name := string(key)
	db.get(key) // what has expired already does not count as a change later
	if w.keys[name] {
		return
	}
	if w.keys == nil {
		w.keys = make(map[string]bool)
	}
	w.keys[name] = true
	if db.watched == nil {
		db.watched = make(map[string]map[*Watch]struct{})
	}
	if db.watched[name] == nil {
		db.watched[name] = make(map[*Watch]struct{})
	}
	db.watched[name][w] = struct{}{}
}

// Unwatch ends w.
func (db *DB) Unwatch(w *Watch) {
	for name := range w.keys {
		if delete(db.watched[name], w); len(db.watched[name]) == 0 {
			delete(db.watched, name)
		}
	}
	w.keys, w.Touched = nil, false
}

// touch tells who watches a key that it has changed.
func (db *DB) touch(key string) {
	db.stats.Changes++
	if len(db.watched) == 0 {
		return
	}
	for w := range db.watched[key] {
		w.Touched = true
	}
}
