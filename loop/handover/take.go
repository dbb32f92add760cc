//go:build unix

package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
)

// Take starts srv, as srv.Start(ctx) does, and takes over from the process that serves cfg.Path:
// its listeners before srv starts, and then its connections, until it has handed over all that can
// move. Without such a process it only starts srv.
//
// srv must have the addresses of the old process that it is to take over; others of srv are opened
// as ever, and those that it does not have end with the old process. Take blocks, and must not be
// called on a loop.
//
// With an error srv has not started, and the old process serves as before; except for ErrTakenBack:
// then srv runs, and serves the connections that have moved, beside the old process, which has the
// others. The caller ends srv, or goes on with it.
func Take(ctx context.Context, srv *loop.Server, cfg Config) (Report, error) {
	if err := cfg.fill(); err != nil {
		return Report{}, err
	}
	t, err := reach(srv, cfg)
	for began := time.Now(); isGone(err) && time.Since(began) < dyingFor; time.Sleep(5 * time.Millisecond) {
		t, err = reach(srv, cfg) // it is dying, or another process has taken over from it
	}
	if err != nil {
		return Report{}, err
	}
	if t == nil {
		return Report{}, srv.Start(ctx)
	}
	if err := srv.Start(ctx); err != nil {
		t.fail()
		return Report{}, err
	}
	t.closeListeners() // of addresses that srv does not have
	defer t.Close()
	defer t.life.Close()
	err = t.takeConns()
	if t.retired && errors.Is(err, ErrTakenBack) {
		srv.Logger.Error().Err(err).Msg("the last connections were not handed over: they drain with the old process")
		err = nil
	}
	return t.report, err
}

// dyingFor is how long a process that is being killed may still be reached.
const dyingFor = 2 * time.Second

func isGone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// reach begins with the old process: its listeners are srv's then. nil: there is none.
func reach(srv *loop.Server, cfg Config) (*taker, error) {
	nc, err := net.DialTimeout("unix", cfg.Path, cfg.Timeout)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		in.Inherit(srv, []inside.Bound{}) // it may be dying
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("handover: cannot reach the old process at %s: %w", cfg.Path, err)
	}
	t := &taker{wire: wire{nc.(*net.UnixConn), cfg.Timeout}, srv: srv, check: cfg.Check}
	t.report.Predecessor = true
	if err := t.begin(); err != nil {
		t.fail()
		return nil, err
	}
	in.Inherit(srv, t.bound)
	return t, nil
}

// A taker is the new process' side.
type taker struct {
	wire
	srv    *loop.Server
	check  func(state []byte) error
	bound  []inside.Bound
	life   *os.File // at its end when the old process is dead
	report Report

	retired bool // the old process ends, whatever comes
}

// fail gives all back that begin has taken.
func (t *taker) fail() {
	t.closeListeners()
	for _, ln := range t.report.Also {
		_ = ln.Close()
	}
	if t.life != nil {
		_ = t.life.Close()
	}
	_ = t.Close()
}

// closeListeners closes those that the Server has not taken.
func (t *taker) closeListeners() {
	for _, b := range t.bound {
		if b.Listener != nil {
			_ = b.Listener.Close()
		}
	}
}

// begin takes the listeners.
func (t *taker) begin() error {
	if err := t.sameUser(); err != nil {
		return err
	}
	if err := t.send(kindHello, greeting{"loopwheel", version}, -1); err != nil {
		return fmt.Errorf("handover: the old process: %w", err)
	}
	m, err := t.receive(kindLife)
	if err != nil {
		return err
	}
	if t.life = m.file; t.life == nil {
		return errors.New("handover: the old process sent no pipe")
	}
	for {
		m, err := t.receive(kindListens, kindAlso, kindStarted)
		if err != nil {
			return err
		}
		if m.kind == kindStarted {
			t.report.Listeners = len(t.bound)
			return nil
		}
		b, err := boundOf(m)
		if err != nil {
			return err
		}
		if m.kind == kindListens {
			t.bound = append(t.bound, b)
			continue
		}
		if t.report.Also == nil {
			t.report.Also = make(map[string]net.Listener)
		}
		t.report.Also[b.Addr] = b.Listener
	}
}

// boundOf returns the listener of a message, and its address or name.
func boundOf(m message) (b inside.Bound, err error) {
	defer m.close()
	if m.file == nil {
		return b, errors.New("handover: the old process sent an address without its listener")
	}
	if err = json.Unmarshal(m.body, &b.Addr); err != nil {
		return b, err
	}
	b.Listener, err = net.FileListener(m.file)
	return b, err
}

// takeConns takes batches of connections until there are no more.
func (t *taker) takeConns() error {
	if err := t.send(kindStarted, nil, -1); err != nil {
		return t.broken(err)
	}
	var batch []*inside.Moved
	for {
		m, err := t.receive(kindConn, kindBatchEnd, kindRetired, kindOver)
		if err != nil {
			return t.settle(batch, nil, err)
		}
		switch m.kind {
		case kindConn:
			moved, err := movedOf(m)
			if err != nil {
				return t.settle(batch, nil, err)
			}
			batch = append(batch, moved)
		case kindBatchEnd:
			refused := t.checked(batch)
			var began int64
			if err = t.send(kindConfirm, refused, -1); err == nil {
				// The old process may be stopped at this point, and has decided already: only it
				// knows.
				if m, err = t.receiveBy(time.Time{}, kindLetGo); err == nil {
					err = json.Unmarshal(m.body, &began)
				}
			}
			if err := t.settle(batch, refused, err); err != nil || t.report.Died {
				return err
			}
			t.report.LongestPause = max(t.report.LongestPause, time.Since(time.Unix(0, began)))
			batch = nil
		case kindRetired:
			t.retired = true
		case kindOver:
			return json.Unmarshal(m.body, &t.report.Stayed)
		}
	}
}

// movedOf returns the connection of a message.
func movedOf(m message) (*inside.Moved, error) {
	defer m.close()
	if m.file == nil {
		return nil, errors.New("handover: the old process sent a connection without its socket")
	}
	var r record
	if err := json.Unmarshal(m.body, &r); err != nil {
		return nil, err
	}
	nc, err := net.FileConn(m.file)
	if err != nil {
		return nil, err
	}
	moved, err := r.moved(nc)
	if err != nil {
		_ = nc.Close()
	}
	return moved, err
}

// checked returns the numbers of the connections that this process does not understand.
func (t *taker) checked(batch []*inside.Moved) (refused []int) {
	for i, m := range batch {
		if t.check != nil && t.check(m.Handler) != nil {
			refused = append(refused, i)
		}
	}
	return refused
}

// settle serves a batch that is this process', or drops it. err is why the old process has not let
// go of it; nil: it has.
func (t *taker) settle(batch []*inside.Moved, refused []int, err error) error {
	if err != nil {
		err = t.broken(err)
	}
	back := make(map[int]bool)
	for _, i := range refused {
		back[i] = true
	}
	for i, m := range batch {
		switch {
		case errors.Is(err, ErrTakenBack):
			_ = m.Net.Close() // a copy: the peer notices nothing
		case back[i]:
			_ = m.Net.Close()
			t.report.Refused++
		default:
			if failed := in.In(t.srv, m); failed != nil {
				t.srv.Logger.Error().Err(failed).Stringer("remote", m.Remote).Msg("a connection that was handed over is lost")
				_ = m.Net.Close()
				continue
			}
			t.report.Conns++
		}
	}
	return err
}

// broken finds out what has become of an old process of which nothing more is heard. One that has
// only been silent for too long has what was not confirmed, and finds that out by itself. If it has
// given up it has said so on the pipe, before anything else. If it is dead the pipe is at its end,
// and nil is returned: all is this process'.
func (t *taker) broken(cause error) error {
	_ = t.Close() // the old process may wait for an answer
	if !errors.Is(cause, os.ErrDeadlineExceeded) {
		var said [1]byte
		if n, _ := t.life.Read(said[:]); n == 0 {
			t.report.Died = true
			return nil
		}
	}
	return fmt.Errorf("%w (%w)", ErrTakenBack, cause)
}
