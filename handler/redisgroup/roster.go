package redisgroup

import (
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// A roster is the set of users in an ordered room, as known to this process for joining
// connections. It is read once, in pages, and then updated by the entries that follow. The room's
// lock guards it.
type roster struct {
	room   *room
	users  map[string]struct{}
	cursor string   // of the page that is being read
	whole  bool     // all pages were read
	at     Position // the users are correct once the room has reached this position
}

// readRoster starts to read the users, unless they have been read or are being read. r.mu is held.
func (r *room) readRoster() {
	if r.order.roster == nil {
		r.order.roster = &roster{room: r, users: make(map[string]struct{}), cursor: "0"}
		r.order.roster.ask()
	}
}

// loseRoster discards the users, which may have changed. r.mu is held.
func (r *room) loseRoster() {
	if r.order.roster = nil; len(r.order.joins) > 0 {
		r.readRoster()
	}
}

// ask requests a page. Without the Hub, which is closed, nobody joins.
func (w *roster) ask() {
	_ = w.room.hub.querySenders[w.room.bucket].add(&request{place: w.room.place, op: opQuery, query: w})
}

// complete reports whether the users are those at the room's position.
func (o *order) complete() bool {
	return o.roster != nil && o.roster.whole && o.last.Compare(o.roster.at) >= 0
}

func (w *roster) list() []string { return slices.Collect(maps.Keys(w.users)) }

// take applies an entry.
func (w *roster) take(e Entry) {
	switch e.Kind {
	case Joined:
		w.users[e.User] = struct{}{}
	case Left:
		delete(w.users, e.User)
	}
}

func (w *roster) void() bool   { return w.room.forgotten.Load() }
func (w *roster) refuse(error) {}

func (w *roster) command() (*onredis.Script, []string, []any) {
	r := w.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.order.roster != w {
		return nil, nil, nil
	}
	keys := []string{r.key, r.hub.keys.users(r.place)}
	return usersScript, keys, append([]any{w.cursor}, r.hub.streamArgs()...)
}

// answered processes a page. Entries that the room has accepted since it was read change it.
func (w *roster) answered(cmd *redis.Cmd) error {
	r := w.room
	texts, err := cmd.StringSlice()
	if onredis.Denied(err) {
		r.refuseAll(err)
	}
	if err != nil {
		return err
	}
	if len(texts) < 2 {
		return errAnswer
	}
	end, err := ParsePosition(texts[0])
	if err != nil {
		return errAnswer
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	o := &r.order
	if o.roster != w {
		return nil
	}
	since, known := o.after(end)
	if !known {
		r.loseRoster()
		return nil
	}
	for _, user := range texts[2:] {
		w.users[user] = struct{}{}
	}
	for _, e := range since {
		w.take(e)
	}
	if end.Compare(w.at) > 0 {
		w.at = end
	}
	if w.cursor, w.whole = texts[1], texts[1] == "0"; !w.whole {
		w.ask()
	}
	r.checkJoins()
	return nil
}
