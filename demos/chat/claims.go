package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/loopwheel/loopwheel/handler/redisgroup"
	"github.com/loopwheel/loopwheel/loop"
)

// owner is how a nickname is claimed: by the secret of a page, or else by the connection. It ends
// with the nickname as it is written, which others are told.
func owner(s *session, nick string) string {
	if s.key != "" {
		return s.key + " " + nick
	}
	return "conn" + strconv.FormatUint(s.c.ID(), 36) + "@" + s.chat.id + " " + nick
}

// claim claims the name for as long as the connection lives, and gives the one before back. Of two
// that look alike Redis knows one name: the one before is given back first then.
func (h *sharedHouse) claim(s *session, nick string, then func(err error)) {
	if s.name == "" || s.name == nick || skeleton(s.name) != skeleton(nick) {
		h.claimFor(s, nick, then)
		return
	}
	before := s.name
	err := loop.Offload(s.c, func(ctx context.Context) error {
		return h.hub.Release(ctx, skeleton(before), owner(s, before))
	}, func(*loop.Conn, error) {
		s.name = ""
		h.claimFor(s, nick, func(err error) {
			if err == nil {
				then(nil)
				return
			}
			h.claimFor(s, before, func(error) { then(err) }) // it had that
		})
	})
	if err != nil {
		then(err)
	}
}

// claimFor claims a name. One that another process has got later, as this one was cut off, ends the
// connection.
func (h *sharedHouse) claimFor(s *session, nick string, then func(err error)) {
	told := false
	err := h.hub.ClaimFor(s.c, skeleton(nick), owner(s, nick), func(c *loop.Conn, err error) {
		if told {
			c.CloseWithError(errTaken)
			return
		}
		told = true
		if errors.Is(err, redisgroup.ErrTaken) {
			err = errTaken
		}
		if err == nil {
			err = h.hub.Bind(c, nick)
		}
		if before := s.name; err == nil {
			if s.name = nick; before != "" && before != nick {
				h.hub.ReleaseFor(c, skeleton(before), owner(s, before))
			}
		}
		then(err)
	})
	if err != nil {
		then(err)
	}
}

// release has nothing to do: what was claimed for a connection ends with it.
func (h *sharedHouse) release(*session, string) {}
