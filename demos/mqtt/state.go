package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file takes a broker's state to the next process: by a file when the broker ends (-state), or
// together with the connections (-handover), as the State of package handover. While it is frozen no
// connection is read, and what timers would do waits: so each session goes on exactly where it was.

// saved is the state of a broker without its connections. Messages are kept once and referred to by
// number, because many sessions can wait for the same one.
type saved struct {
	Messages []savedMessage
	Retained []int
	Sessions []savedSession
}

type savedMessage struct {
	Topic   string
	Payload []byte
	QoS     byte
	Retain  bool
	Props   mqtt.Properties
	Expires time.Time
}

type savedSession struct {
	ID        string
	Expiry    uint32
	Ends      time.Time // zero: never
	Subs      []savedSub
	LastID    uint16
	Turn      uint64
	Inflight  []savedOut
	Queue     []savedOut
	Received  []uint16
	Will      *mqtt.Will
	WillDelay uint32
	WillDue   time.Time // zero: not before the connection ends
}

type savedSub struct {
	Filter            string
	KeepFlag, NoLocal bool
	QoS               byte
	ID                uint32
}

type savedOut struct {
	Message   int // -1: only the identifier is needed
	QoS       byte
	Retain    bool
	SubID     uint32
	SubIDs    []uint32
	ID        uint16
	Turn      uint64
	Sent, Rel bool
}

// each calls f for each shard, one after the other: on its loop, or here if that has ended.
func (b *broker) each(f func(sh *shard)) {
	for _, sh := range b.shards {
		done := make(chan struct{})
		if sh.l.Post(func() { defer close(done); f(sh) }) != nil {
			f(sh)
			continue
		}
		<-done
	}
}

// hops is how often loops post to one another, one after the other, for one packet or one claim.
const hops = 8

// Freeze implements handover.State. No connection is read any more.
func (b *broker) Freeze() error {
	for range hops {
		b.each(func(*shard) {})
	}
	b.each(func(sh *shard) { sh.frozen = true })
	return nil
}

// Thaw implements handover.State.
func (b *broker) Thaw() {
	b.each(func(sh *shard) {
		sh.frozen = false
		for _, f := range sh.late {
			f()
		}
		sh.late = nil
	})
}

// unlessFrozen calls f, a timer's function, now or after Thaw.
func (sh *shard) unlessFrozen(f func()) {
	if sh.frozen {
		sh.late = append(sh.late, f)
		return
	}
	f()
}

// Restore implements handover.State.
func (b *broker) Restore(r io.Reader) error { return b.load(r) }

// Save implements handover.State. It is called by a broker that is frozen, or whose server has ended.
func (b *broker) Save(w io.Writer) error {
	all, numbers := saved{}, map[*message]int{}
	number := func(m *message) int {
		if m == nil {
			return -1
		}
		n, known := numbers[m]
		if !known {
			n = len(all.Messages)
			numbers[m] = n
			all.Messages = append(all.Messages, savedMessage{m.topic, m.payload, m.qos, m.retain, m.props, m.expires})
		}
		return n
	}
	out := func(o *outgoing) savedOut {
		return savedOut{number(o.m), o.o.qos, o.o.retain, o.o.id, o.ids, o.id, o.turn, o.sent, o.rel}
	}
	b.each(func(sh *shard) {
		if sh.index == 0 {
			sh.retained.root.visitAll(false, func(m *message) {
				if !strings.HasPrefix(m.topic, "$SYS/") {
					all.Retained = append(all.Retained, number(m))
				}
			})
		}
		for _, s := range sh.sessions {
			to := savedSession{ID: s.id, Expiry: s.expiry, Ends: s.ends, LastID: s.lastID, Turn: s.turn, WillDue: s.willDue}
			if s.client != nil && s.expiry != never { // if the connection does not move with it
				to.Ends = sh.l.Now().Add(max(time.Minute, time.Duration(s.expiry)*time.Second))
			}
			for _, sub := range s.subs {
				to.Subs = append(to.Subs, savedSub{sub.filter, sub.keepFlag, sub.noLocal, sub.options.qos, sub.options.id})
			}
			for _, o := range s.inflight {
				to.Inflight = append(to.Inflight, out(o))
			}
			for _, o := range s.queue {
				to.Queue = append(to.Queue, out(o))
			}
			for id := range s.received {
				to.Received = append(to.Received, id)
			}
			if s.will != nil {
				to.Will, to.WillDelay = &s.will.w, s.will.delay
			}
			all.Sessions = append(all.Sessions, to)
		}
	})
	return gob.NewEncoder(w).Encode(all)
}

// load gives the broker, whose server has started, a state, or none if r is nil, and lets clients
// in. It must not be called on a loop.
func (b *broker) load(r io.Reader) error {
	var all saved
	if r != nil {
		if err := gob.NewDecoder(r).Decode(&all); err != nil {
			return fmt.Errorf("the state of the broker before: %w", err)
		}
	}
	messages := make([]*message, len(all.Messages))
	for i, m := range all.Messages {
		messages[i] = &message{topic: m.Topic, payload: m.Payload, qos: m.QoS, retain: m.Retain, props: m.Props, expires: m.Expires}
	}
	for _, n := range all.Retained {
		messages[n].stamp = b.stamp.Add(1)
	}
	sessions := make([][]*savedSession, len(b.shards))
	for i := range all.Sessions {
		s := &all.Sessions[i]
		home := b.home(s.ID)
		sessions[home] = append(sessions[home], s)
	}
	// First all shards get their sessions, and then connections find them.
	for _, step := range []func(sh *shard){
		func(sh *shard) {
			for _, n := range all.Retained {
				sh.retained.set(messages[n])
			}
			for _, s := range sessions[sh.index] {
				sh.restore(s, messages)
			}
		},
		func(sh *shard) {
			sh.ready = true
			for _, cl := range sh.held {
				cl()
			}
			sh.held = nil
		},
	} {
		b.each(step)
	}
	b.loaded = true
	return nil
}

// restore begins a session with its state. The client is away, or its connection comes.
func (sh *shard) restore(from *savedSession, messages []*message) {
	s := sh.newSession(from.ID)
	s.expiry, s.lastID, s.turn = from.Expiry, from.LastID, from.Turn
	out := func(o savedOut) *outgoing {
		to := &outgoing{o: options{o.QoS, o.Retain, o.SubID}, ids: o.SubIDs, id: o.ID, turn: o.Turn, sent: o.Sent, rel: o.Rel}
		if o.Message >= 0 {
			to.m = messages[o.Message]
		}
		return to
	}
	for _, o := range from.Inflight {
		s.inflight[o.ID] = out(o)
		s.inflight[o.ID].keep(&sh.budget)
		s.flying += s.inflight[o.ID].size()
	}
	for _, o := range from.Queue {
		s.queue = append(s.queue, out(o))
		s.queue[len(s.queue)-1].keep(&sh.budget)
	}
	s.extra = len(s.queue)
	for _, id := range from.Received {
		s.received[id] = 0
		s.charge(&sh.budget, receivedCost)
	}
	sh.owners[s.id] = &owner{shard: sh.index}
	for _, sub := range from.Subs {
		name, _ := splitShared(sub.Filter)
		sh.subscribe(s, &subscription{s: s, filter: sub.Filter, groupName: name, noLocal: sub.NoLocal, keepFlag: sub.KeepFlag,
			options: options{qos: sub.QoS, id: sub.ID}})
	}
	if from.Will != nil {
		s.setWill(sh, &will{from.WillDelay, *from.Will})
		if !from.WillDue.IsZero() {
			s.willIn(sh, time.Until(from.WillDue))
		}
	}
	if !from.Ends.IsZero() {
		s.endIn(sh, time.Until(from.Ends))
	}
}

// conn is the state of a connection that moves.
type conn struct {
	ID         string
	Version    mqtt.Version
	ReceiveMax int
	MaxPacket  int
	Aliases    []string
	OutAliases map[string]uint16
	MaxAlias   int
	KeepAlive  uint16
}

// Save implements loop.Saver. A client that is getting its session does not move yet.
func (cl *client) Save(*loop.Conn) ([]byte, error) {
	if cl.version != 0 && cl.s == nil || cl.over {
		return nil, errors.New("mqtt: the client is coming or going")
	}
	to := conn{Version: cl.version, ReceiveMax: cl.receiveMax, MaxPacket: cl.maxPacket, Aliases: cl.aliases, OutAliases: cl.outAliases, MaxAlias: cl.maxAlias, KeepAlive: cl.keepAlive}
	if cl.s != nil {
		to.ID = cl.s.id
	}
	var state bytes.Buffer
	err := gob.NewEncoder(&state).Encode(to)
	return state.Bytes(), err
}

// acceptMoved returns the handler of a connection of the process before.
func (b *broker) acceptMoved(cl *client, state []byte) loop.Handler {
	var from conn
	if err := gob.NewDecoder(bytes.NewReader(state)).Decode(&from); err != nil {
		cl.c.Log().Error().Err(err).Msg("the state of a connection that moves")
		return nil
	}
	if from.Version == 0 { // its CONNECT has not come
		return cl
	}
	cl.waits.Stop()
	cl.version, cl.receiveMax, cl.maxPacket, cl.maxAlias = from.Version, from.ReceiveMax, from.MaxPacket, from.MaxAlias
	cl.aliases, cl.outAliases = from.Aliases, from.OutAliases
	for _, topic := range cl.aliases {
		cl.charge(costOfAlias(topic))
	}
	for topic := range cl.outAliases {
		cl.charge(costOfAlias(topic))
	}
	cl.setKeepAlive(from.KeepAlive)
	cl.c.PauseRead()
	cl.c.AfterFunc(0, func() { cl.resume(from.ID) }) // when it goes on: it may be a copy
	return cl
}

// resume gives a client the session that it had.
func (cl *client) resume(id string) {
	cl.sh.claim(id, false, func(s *session, present bool) {
		if s == nil {
			cl.c.CloseWithError(errEnd)
			return
		}
		s.attach(cl)
		switch {
		case cl.over: // it has closed meanwhile
			s.detach(cl.sh, false, false)
		case !present:
			cl.c.CloseWithError(errEnd)
		default:
			cl.connected = true
			cl.sh.b.counts.clients.Add(1)
			cl.sh.tellGroups(s)
			s.pump(cl.sh)
			cl.c.ResumeRead()
		}
	})
}

// run serves, with the state of the process before, or with that in a file, which may be empty.
func (b *broker) run(ctx context.Context, h *handover.Handover, file string) error {
	b.stateComes, b.start, file = true, time.Now(), linked(file)
	report, err := h.Ready(ctx)
	if err != nil {
		return h.Run(ctx) // the same error, when what has moved here has drained
	}
	switch {
	case b.loaded:
	case report.Predecessor > 0: // it has died before it had said what it had
		err = b.load(nil)
	default:
		err = b.loadFile(file)
	}
	if err != nil {
		return err
	}
	for _, a := range b.srv.Addrs() {
		fmt.Println("listening on", a)
	}
	err = h.Run(ctx)
	select {
	case <-h.Retired():
	default:
		if file != "" {
			err = errors.Join(err, b.saveFile(file))
		}
	}
	return err
}

// linked follows symbolic links, even to a file that does not exist yet: they stay when it is replaced.
func linked(file string) string {
	for range 40 { // as many as Linux follows
		to, err := os.Readlink(file)
		if err != nil { // no link
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(file), to)
		}
		file = to
	}
	return file
}

// oldSuffix is what a file's name ends with once its state has been loaded.
const oldSuffix = ".old"

// loadFile loads what saveFile has written, once: what a broker that is killed leaves would be of the
// past. The file is kept under another name until the next one has been written. A start without a
// file leaves that one alone: it may be all that is left, if the last broker could not save.
func (b *broker) loadFile(file string) error {
	if file == "" {
		return b.load(nil)
	}
	probe, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)) // as saveFile does, which must not be the first to fail
	if err != nil {
		return fmt.Errorf("the state could not be saved: %w", err)
	}
	_, _ = probe.Close(), os.Remove(probe.Name())
	f, err := os.Open(file)
	old := file + oldSuffix
	_, lacksOld := os.Stat(old)
	if errors.Is(err, os.ErrNotExist) {
		if lacksOld == nil {
			b.srv.Logger.Warn().Str("file", file).Str("older", old).
				Msg("starting empty: there is no state file; an older one may be of use, until the next one is saved")
		}
		return b.load(nil)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	state, err := checked(f)
	if err == nil {
		err = b.load(state)
	}
	if err == nil {
		return os.Rename(file, old)
	}
	todo := "move it away to start empty"
	if lacksOld == nil {
		todo += ", or replace it with the older " + old
	}
	return fmt.Errorf("%s is no state of a broker, or damaged: %w: %s", file, err, todo)
}

// checked returns the state in a file of saveFile, once it agrees with its checksum.
func checked(f *os.File) (io.Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	size, sum, want := info.Size()-crc32.Size, crc32.NewIEEE(), make([]byte, crc32.Size)
	if size < 0 {
		return nil, io.ErrUnexpectedEOF
	}
	if _, err := io.Copy(sum, io.NewSectionReader(f, 0, size)); err != nil {
		return nil, err
	}
	if _, err := f.ReadAt(want, size); err != nil {
		return nil, err
	}
	if !bytes.Equal(sum.Sum(nil), want) {
		return nil, errors.New("wrong checksum")
	}
	return io.NewSectionReader(f, 0, size), nil
}

// saveFile writes the state of a broker that has ended to a file, with a checksum behind it.
func (b *broker) saveFile(file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it is still there
	sum := crc32.NewIEEE()
	err = b.Save(io.MultiWriter(f, sum))
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), file); err != nil {
		return err
	}
	if err := os.Remove(file + oldSuffix); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
