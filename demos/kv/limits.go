package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/loop"
)

// mayEnter counts a client, unless there are as many as there may be.
func (s *server) mayEnter() bool {
	if limit := s.maxClients.Load(); s.clients.Add(1) > limit && limit > 0 {
		s.clients.Add(-1)
		return false
	}
	return true
}

// fitClients makes maxclients what the system allows, if that is less or nothing was said.
func (s *server) fitClients() {
	possible := int64(s.net.MaxConns)
	if limit := s.maxClients.Load(); limit == 0 || limit > possible {
		if limit > 0 {
			s.log.Warn().Int64("maxclients", limit).Int64("possible", possible).Msg("the limit of open files (ulimit -n) is too low for maxclients")
		}
		s.maxClients.Store(possible)
		s.config.change([]change{{name: "maxclients", value: strconv.FormatInt(possible, 10)}})
	}
}

// prepareMaxClients reads a maxclients. Fewer than there are closes nobody.
func (s *server) prepareMaxClients(value string) (apply func(), why string) {
	n, why := configInt(value, 1, math.MaxUint32)
	if possible := int64(s.net.MaxConns); why == "" && n > possible {
		why = fmt.Sprintf("The operating system is not able to handle the specified number of clients, try with %d", possible)
	}
	return func() { s.maxClients.Store(n) }, why
}

// prepareTimeout reads a timeout, which counts for who is connected already, too.
func (s *server) prepareTimeout(value string) (apply func(), why string) {
	n, why := configInt(value, 0, math.MaxInt32)
	return func() {
		s.idle.Store(n * int64(time.Second))
		for _, sh := range s.shards {
			sh.watchSilence()
		}
	}, why
}

// postAgain is when what found a mailbox full is posted again.
const postAgain = 10 * time.Millisecond

// watchSilence has the timeout count for all clients of the shard, as soon as its loop gets to it.
// Any goroutine may call it.
func (sh *shard) watchSilence() {
	err := sh.loop.Post(func() {
		for _, se := range sh.sessions {
			se.watchSilence()
		}
	})
	if errors.Is(err, loop.ErrMailboxFull) {
		time.AfterFunc(postAgain, sh.watchSilence)
	}
}

// configInt reads a number, and says why it cannot be that, or "".
func configInt(value string, least, most int64) (n int64, why string) {
	n, ok := resp.ParseInt([]byte(value))
	switch {
	case !ok:
		return 0, "argument couldn't be parsed into an integer"
	case n < least || n > most:
		return 0, fmt.Sprintf("argument must be between %d and %d inclusive", least, most)
	}
	return n, ""
}

// watchSilence has the client closed when nothing was said for the timeout, by either side: but for
// one that waits for a key or listens, as it has nothing to say.
func (s *session) watchSilence() {
	s.silence.Stop()
	d := time.Duration(s.server.idle.Load())
	if d == 0 {
		return
	}
	s.silence = s.conn.OnIdle(loop.IdleBoth, d, func(int) {
		if time.Duration(s.server.idle.Load()) != d { // it has been set, and the loop not told yet
			s.watchSilence()
			return
		}
		if s.waiting == nil && s.subs.len() == 0 {
			s.conn.CloseWithError(loop.ErrIdle)
		}
	})
}
