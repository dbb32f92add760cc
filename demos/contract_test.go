// Package demos_test uses every name that programs outside of the module rely on, with its type: a
// change of one fails to compile here.
package demos_test

import (
	"context"
	"crypto/tls"
	"iter"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/timing"
)

type wheel interface {
	At(when time.Duration, f func()) timing.Timer
	Every(first, period time.Duration, f func()) timing.Timer
	Stop(t timing.Timer) bool
	Reset(t timing.Timer, when time.Duration) bool
	Advance(now time.Duration, budget int) (fired int)
	Next() (when time.Duration, ok bool)
	Len() int
	Drain(f func(when time.Duration))
}

type server interface {
	Start(ctx context.Context) error
	Wait() error
	Run(ctx context.Context) error
	LocalAddr() net.Addr
	Addrs() []net.Addr
	Loops() []*loop.Loop
	Stats() loop.Stats
	Close() error
	Adopt(nc net.Conn, read []byte, as loop.Listener) error
}

type conn interface {
	Send(msg []byte) error
	Write(p []byte) (int, error)
	Close()
	CloseWithError(err error)
	AfterFunc(d time.Duration, f func()) loop.Timer
	Every(d time.Duration, f func()) loop.Timer
	OnIdle(k loop.Idle, d time.Duration, f func(n int)) loop.Timer
	SetIdleTimeout(d time.Duration)
	SetCodec(codec.Codec)
	Loop() *loop.Loop
	Ref() loop.Ref
	Log() *zerolog.Logger
	RemoteAddr() net.Addr
	LocalAddr() net.Addr
	StartTLS(cfg *tls.Config, done func()) error
	Detach() (nc net.Conn, read []byte, err error)
	SyscallConn() (syscall.RawConn, error)
	OnFlushed(f func())
	NetConn() (net.Conn, error)
}

type ref interface {
	Tell(f func(c *loop.Conn)) error
	TryTell(f func(c *loop.Conn)) error
	Send(msg []byte) error
	Close()
}

type eventLoop interface {
	Post(f func()) error
	TryPost(f func()) error
	AfterFunc(d time.Duration, f func()) loop.Timer
	Every(d time.Duration, f func()) loop.Timer
	Now() time.Time
	Conns() iter.Seq[*loop.Conn]
	Index() int
}

var (
	_ wheel         = timing.New(timing.Config{Tick: time.Millisecond})
	_ server        = (*loop.Server)(nil)
	_ conn          = (*loop.Conn)(nil)
	_ ref           = loop.Ref{}
	_ eventLoop     = (*loop.Loop)(nil)
	_ loop.Handler  = loop.HandlerFunc(func(*loop.Conn, []byte) error { return nil })
	_ codec.Codec   = codec.Raw{}
	_ []codec.Codec = []codec.Codec{codec.Lines{Max: 1}, codec.Delimiter{Delim: ";", Max: 1}, codec.Fixed{Size: 1}, codec.Varint{Max: 1},
		codec.Length{Offset: 1, Size: 2, LittleEndian: true, Adjust: 1, Strip: 1, Inclusive: true, Max: 1}}
	_ codec.Stateful
	_ interface {
		DecodeFrom(data []byte, seen int) (advance int, frame []byte, err error)
	} = codec.Resumer(nil)
	_ interface{ AppendReply(dst []byte) []byte } = codec.Responder(nil)
	_ error                                       = &loop.PanicError{}
	_ error                                       = &loop.DrainError{Cut: 1}

	_ = []error{codec.ErrTooLong, codec.ErrMalformed, loop.ErrIdle, loop.ErrServerClosed, loop.ErrClosed, loop.ErrMailboxFull, loop.ErrSlowConsumer, loop.ErrTooManyConns}
	_ = []loop.Idle{loop.IdleRead, loop.IdleWrite, loop.IdleBoth, loop.WriteStalled}
	_ = []loop.Engine{loop.EngineDefault, loop.EngineGnet, loop.EngineEpoll, loop.EngineNet}
	_ = [...]int{codec.DefaultMax}
	_ = loop.Server{
		Addr: "tcp://:7000", Accept: func(*loop.Conn) loop.Handler { return nil }, Codec: codec.Raw{}, IdleTimeout: time.Minute,
		Listeners: []loop.Listener{{Addr: "unix:///run/x.sock", Codec: codec.Raw{}, Accept: nil}}, TLS: &tls.Config{},
		OnStart: func(*loop.Loop) {}, OnStop: func(*loop.Loop) {}, NumLoops: 1, Logger: zerolog.Nop(), Engine: loop.EngineDefault,
		Limits:   loop.Limits{HoldBackAt: 1},
		Timeouts: loop.Timeouts{}, Drain: loop.Drain{}, Hooks: loop.Hooks{}, UDP: loop.UDPOptions{}, Debug: loop.Debug{},
		TCP: loop.TCPOptions{Control: func(string, string, syscall.RawConn) error { return nil }},
	}
)

// The parts of the contract that are generic, or functions.
func TestContract(t *testing.T) {
	local := loop.NewLocal(func(*loop.Loop) int { return 1 })
	var get func(*loop.Loop) *int = local.Get
	var dial func(loop.Dialer, *loop.Loop, string, func(*loop.Conn, error) loop.Handler) func() = loop.Dialer.Dial
	var pipe func(a, b *loop.Conn, cfg loop.PipeConfig) = loop.Pipe
	var offload func(*loop.Conn, func(context.Context) int, func(*loop.Conn, int)) error = loop.Offload[int]
	var as func(*loop.Conn) (loop.HandlerFunc, bool) = loop.HandlerAs[loop.HandlerFunc]
	var stop func(loop.Timer) bool = loop.Timer.Stop
	var reset func(loop.Timer, time.Duration) bool = loop.Timer.Reset
	_, _, _, _, _, _, _ = get, dial, pipe, offload, as, stop, reset

	s := timing.NewScheduler(timing.SchedulerConfig{})
	s.AfterFunc(time.Hour, func() {})
	s.Every(time.Hour, func() {})
	if err := s.Set("key", time.Hour, func() {}); err != nil {
		t.Error(err)
	}
	_ = s.Move("key", time.Hour)
	if !s.Remove("key") {
		t.Error("a key that was set is not there")
	}
	if n := s.Drain(func(timing.Pending) {}); n != 2 {
		t.Errorf("Drain: got %d, want 2", n)
	}
	s.Stop()
	var zero timing.Timer
	if timing.New(timing.Config{}).Stop(zero) || (loop.Timer{}).Stop() {
		t.Error("a zero timer was stopped: got true, want false")
	}
	if one, other := new(loop.Ref), new(loop.Ref); *one != *other {
		t.Errorf("zero Refs: got %v and %v, want equal ones", *one, *other)
	}
}
