package main

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/handover"
)

// This file takes a broker's state to the next process: by a file when the broker ends (-state), or
// over a socket, while package handover moves the connections (-handover).
//
// In a handover the old process goes on delivering while the connections leave it one by one. What
// is for a session whose connection has left waits in the session. When no connection is left and
// the server has ended, the old process writes its state. The new one reads no connection until it
// has that, so nothing is published in between, and each session goes on exactly where it was.

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
	Opened    uint64
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

// save writes the state of a broker whose server has ended.
func (b *broker) save(w io.Writer) error {
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
	b.shards[0].retained.root.visitAll(false, func(m *message) {
		if !strings.HasPrefix(m.topic, "$SYS/") {
			all.Retained = append(all.Retained, number(m))
		}
	})
	for _, sh := range b.shards {
		for _, s := range sh.sessions {
			to := savedSession{ID: s.id, Expiry: s.expiry, Ends: s.ends, Opened: s.opened, LastID: s.lastID, Turn: s.turn, WillDue: s.willDue}
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
	}
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
	connections := map[string]uint64{} // the number of each session's last connection
	for i := range all.Sessions {
		s := &all.Sessions[i]
		home := b.home(s.ID)
		sessions[home] = append(sessions[home], s)
		connections[s.ID] = s.Opened
	}
	b.opened.Store(uint64(time.Now().UnixNano())) // above all numbers of the process before
	resume := func(sh *shard) {
		for _, m := range sh.movers {
			if connections[m.from.ID] == m.from.Opened {
				m.resume()
			} else { // the client has had another connection since, or the state is lost
				m.cl.c.CloseWithError(errEnd)
			}
		}
		sh.movers = nil
	}
	// First all shards get their sessions, then the connections that have moved find them, and then
	// all others.
	for _, step := range []func(sh *shard){
		func(sh *shard) {
			for _, n := range all.Retained {
				sh.retained.set(messages[n])
			}
			for _, s := range sessions[sh.index] {
				sh.restore(s, messages)
			}
		},
		resume,
		func(sh *shard) {
			sh.ready = true
			resume(sh) // a connection may reach its loop as late as now, or later
			for _, cl := range sh.held {
				cl()
			}
			sh.held = nil
		},
	} {
		var done sync.WaitGroup
		for _, sh := range b.shards {
			done.Add(1)
			if err := sh.l.Post(func() { step(sh); done.Done() }); err != nil {
				return err
			}
		}
		done.Wait()
	}
	return nil
}

// restore begins a session with its state. The client is away, or its connection comes.
func (sh *shard) restore(from *savedSession, messages []*message) {
	s := newSession(from.ID)
	s.expiry, s.opened, s.lastID, s.turn = from.Expiry, from.Opened, from.LastID, from.Turn
	out := func(o savedOut) *outgoing {
		to := &outgoing{o: options{o.QoS, o.Retain, o.SubID}, ids: o.SubIDs, id: o.ID, turn: o.Turn, sent: o.Sent, rel: o.Rel}
		if o.Message >= 0 {
			to.m = messages[o.Message]
		}
		return to
	}
	for _, o := range from.Inflight {
		s.inflight[o.ID] = out(o)
	}
	for _, o := range from.Queue {
		s.queue = append(s.queue, out(o))
	}
	s.extra = len(s.queue)
	for _, id := range from.Received {
		s.received[id] = 0
	}
	sh.sessions[s.id] = s
	sh.owners[s.id] = &owner{shard: sh.index}
	sh.b.counts.sessions.Add(1)
	for _, sub := range from.Subs {
		name, _ := splitShared(sub.Filter)
		sh.subscribe(s, &subscription{s: s, filter: sub.Filter, groupName: name, noLocal: sub.NoLocal, keepFlag: sub.KeepFlag,
			options: options{qos: sub.QoS, id: sub.ID}})
	}
	if from.Will != nil {
		s.will = &will{from.WillDelay, *from.Will}
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
	Opened     uint64
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
	if s := cl.s; s != nil {
		to.ID, to.Opened = s.id, s.opened
		// The connection takes nothing any more. If it stays nevertheless, it goes on a bit later.
		s.moving = true
		cl.sh.l.AfterFunc(20*time.Millisecond, func() {
			if cl.s == s {
				s.moving = false
				s.pump(cl.sh)
			}
		})
	}
	var state bytes.Buffer
	err := gob.NewEncoder(&state).Encode(to)
	return state.Bytes(), err
}

// A mover is a client whose connection has moved here, until it has its session.
type mover struct {
	cl   *client
	from conn
}

// acceptMoved returns the handler of a connection of the process before.
func (b *broker) acceptMoved(cl *client, state []byte) loop.Handler {
	m := mover{cl: cl}
	if err := gob.NewDecoder(bytes.NewReader(state)).Decode(&m.from); err != nil {
		cl.c.Log().Error().Err(err).Msg("the state of a connection that moves")
		return nil
	}
	if m.from.Version == 0 { // its CONNECT has not come
		return cl
	}
	cl.waits.Stop()
	cl.version, cl.receiveMax, cl.maxPacket, cl.maxAlias = m.from.Version, m.from.ReceiveMax, m.from.MaxPacket, m.from.MaxAlias
	cl.aliases, cl.outAliases = m.from.Aliases, m.from.OutAliases
	cl.setKeepAlive(m.from.KeepAlive)
	cl.c.PauseRead()
	if cl.sh.ready { // it has come back: the next process has failed
		m.resume()
	} else {
		cl.sh.movers = append(cl.sh.movers, m)
	}
	return cl
}

// resume gives a client the session that it had.
func (m mover) resume() {
	cl := m.cl
	cl.sh.claim(m.from.ID, false, func(s *session, present bool) {
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

// begin starts the server, with the state and the connections of the process that serves the socket
// meet, or with the state in a file. Both may be empty.
func (b *broker) begin(ctx context.Context, file, meet string) (report handover.Report, err error) {
	b.stateComes = true
	b.start = time.Now()
	var before net.Conn
	if meet != "" {
		before, err = net.Dial("unix", meet+".state")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			err = nil
		}
		if err == nil {
			report, err = handover.Take(ctx, b.srv, handover.Config{Path: meet})
		}
	} else {
		err = b.srv.Start(ctx)
	}
	if before != nil {
		defer before.Close()
	}
	if err != nil {
		return report, err
	}
	if report.Predecessor && before != nil {
		if err = b.load(before); err != nil {
			b.srv.Logger.Error().Err(err).Msg("the process before has died: its sessions and retained messages are lost")
			err = b.load(nil)
		}
		return report, err
	}
	f, err := os.Open(file)
	if file == "" || errors.Is(err, os.ErrNotExist) {
		return report, b.load(nil)
	}
	if err != nil {
		return report, err
	}
	defer f.Close()
	if err := b.load(f); err != nil {
		return report, err
	}
	return report, os.Remove(file) // what a broker that is killed left would be of the past
}

// finish waits until the server has ended, and leaves the state to the next process or in the file.
func (b *broker) finish(file, meet string, also map[string]net.Listener) error {
	taken := make(<-chan struct{}) // never
	var heirs *net.UnixListener
	if meet != "" {
		var err error
		if heirs, err = stateSocket(meet); err != nil {
			return fmt.Errorf("-handover %s: %w", meet, err)
		}
		offer, err := handover.Listen(b.srv, handover.Config{Path: meet, Also: also})
		if err != nil {
			return err
		}
		defer offer.Close()
		taken = offer.Done()
		handover.RestartOn(func(err error) { b.srv.Logger.Error().Err(err).Msg("not replaced") }, syscall.SIGHUP)
	}
	err := b.srv.Wait()
	select {
	case <-taken:
		return errors.Join(err, b.saveTo(heirs))
	default:
	}
	if file != "" {
		err = errors.Join(err, b.saveFile(file))
	}
	return err
}

// saveFile writes the state of a broker that has ended to a file.
func (b *broker) saveFile(file string) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // if it is still there
	if err := errors.Join(b.save(f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// stateSocket is where the next process asks for the state. It connects before the handover begins,
// and so waits in the socket's queue until this process has ended, or has died.
func stateSocket(meet string) (*net.UnixListener, error) {
	path := meet + ".state"
	beside := fmt.Sprint(path, ".", os.Getpid()) // it replaces the one of the process before in one step
	_ = os.Remove(beside)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: beside})
	if err != nil {
		return nil, err
	}
	ln.SetUnlinkOnClose(false)
	return ln, errors.Join(os.Chmod(beside, 0o600), os.Rename(beside, path))
}

// saveTo writes the state to each process that has asked: one of them has taken over, and others
// have failed to.
func (b *broker) saveTo(ln *net.UnixListener) error {
	defer ln.Close()
	var state bytes.Buffer
	if err := b.save(&state); err != nil {
		return err
	}
	for patience, sent := time.Second, false; ; patience = 0 {
		_ = ln.SetDeadline(time.Now().Add(patience))
		nc, err := ln.Accept()
		if err != nil && sent {
			return nil
		}
		if err != nil {
			return err
		}
		_, err = nc.Write(state.Bytes())
		sent = sent || err == nil
		_ = nc.Close()
	}
}
