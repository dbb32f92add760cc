package redisgroup

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A SubscribeError says that the Redis user has no right to subscribe to a room, or to a user's own
// messages: this process hears nothing of it. It goes to Config.OnError when that is seen first, and
// to those who are joining with JoinFrom, as Arrival.Err. All other rooms go on. The Hub tries again
// after a while, longer each time, and when it gets other credentials; an ordered room then catches
// up.
type SubscribeError struct {
	Room string // or the user's name
	Err  error  // what Redis said
}

// Error implements error.
func (e *SubscribeError) Error() string {
	return fmt.Sprintf("redisgroup: cannot subscribe to %q: %v", e.Room, e.Err)
}

// Unwrap returns Err.
func (e *SubscribeError) Unwrap() error { return e.Err }

// deniedRetry is about when a subscription that was denied is tried again at first, spread by a
// quarter; then after twice the time, up to deniedMost doublings.
const (
	deniedRetry = time.Second
	deniedMost  = 7
)

// denied is told that Redis does not allow a command about channels. It does none of it then, and
// does not say for which channel: so each is tried alone.
func (f *feed) denied(a *await, err error) {
	if a.kind == unsubscribing { // what comes is for nobody
		f.link.hub.report(err)
		return
	}
	for r, e := range f.deny(a.channels, err) {
		if !f.link.hub.report(e) {
			r.untold(e)
		}
	}
}

// deny notes what was denied, and returns what is news.
func (f *feed) deny(channels []string, err error) map[*room]*SubscribeError {
	f.mu.Lock()
	defer f.mu.Unlock()
	news := make(map[*room]*SubscribeError)
	for _, channel := range channels {
		s := f.subs[channel]
		if s == nil {
			continue
		}
		if s.confirmed++; s.confirmed != s.sent {
			continue // it was asked for again meanwhile
		}
		s.on = false
		switch {
		case !s.wanted && s.stands:
			f.todo[channel] = s
		case !s.wanted:
			delete(f.subs, channel)
			delete(f.todo, channel)
		case len(channels) > 1:
			s.alone = true
			f.todo[channel] = s
		default:
			s.alone = true
			f.retryLater(channel, s)
			e := &SubscribeError{Room: s.room.name, Err: err}
			if s.room.deny(e) {
				news[s.room] = e
			}
		}
	}
	f.signal()
	return news
}

// retryLater has s, which was denied, tried again after a while. It has one deadline, whatever has it
// tried before that: each connection tries it, too, and each try would go on for ever. f.mu is held.
func (f *feed) retryLater(channel string, s *subscription) {
	if s.retry.Pending() {
		return
	}
	d := deniedRetry << min(s.denials, deniedMost)
	s.denials++
	s.retry, _ = f.link.hub.timers.AfterFunc(d*3/4+rand.N(d/2), func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.subs[channel] == s && s.wanted && s.denials > 0 {
			f.todo[channel] = s
			f.signal()
		}
	})
}

// allowed ends the tries of s, which Redis has allowed. f.mu is held.
func (s *subscription) allowed() {
	s.alone, s.denials = false, 0
	s.retry.Stop()
}

// isDenied reports whether Redis says that the user has no right to do that. It has done none of it.
func isDenied(err error) bool { return err != nil && strings.HasPrefix(err.Error(), "NOPERM") }

// retryDenied tries what was denied to who we were before.
func (f *feed) retryDenied() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for channel, s := range f.subs {
		if s.wanted && s.denials > 0 {
			f.todo[channel] = s
		}
	}
	f.signal()
}

// deny tells those who are joining that they cannot, and reports whether that is news.
func (r *room) deny(e *SubscribeError) (news bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	news = !r.order.deniedTold
	r.order.denied, r.order.deniedTold = e, true
	for j := range r.order.joins {
		r.refuse(j, e)
	}
	return news
}

// untold has the next denial be news, as this one was not told.
func (r *room) untold(e *SubscribeError) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.order.denied == e {
		r.order.deniedTold = false
	}
}
