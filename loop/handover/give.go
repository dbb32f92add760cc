//go:build unix

package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

const (
	// batchSize is how many connections move at once. Their pause is the time of one batch, and the
	// death of a process costs one at most.
	batchSize = 32

	// acceptAgain is how long an offer waits after it could not accept.
	acceptAgain = time.Second

	// lookAgain is how often connections are asked again that cannot move at the moment.
	lookAgain = 20 * time.Millisecond
)

// An Offer hands a Server over to the process that asks for it.
type Offer struct {
	cfg  Config
	srv  *loop.Server
	ln   *net.UnixListener
	file os.FileInfo // of Path
	done sync.WaitGroup

	taken chan struct{} // closed when the next process has taken over
}

// Listen offers a Server that was started to the next process, which calls Take: on a goroutine of
// its own, at cfg.Path. It replaces the socket that is there, so call it after Take. When the next
// process has all that can move, the Server ends as by Shutdown: what is left drains. A failed
// handover is logged, and the Server goes on as if nothing had happened.
//
// A Server with UDP addresses cannot be handed over, and is an error.
func Listen(srv *loop.Server, cfg Config) (*Offer, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if _, err := peerUser(-1); errors.Is(err, errors.ErrUnsupported) {
		return nil, fmt.Errorf("handover: this system does not tell whose a process is: %w", err)
	}
	if srv.Addrs() == nil {
		return nil, errors.New("handover: Listen needs a Server that was started, by Take")
	}
	for _, a := range srv.Addrs() {
		if a.Network() == "udp" {
			return nil, fmt.Errorf("handover: the sessions of the UDP address %s cannot move: give it a Server of its own", a)
		}
	}
	// The new file replaces the old one in one step, so that there is one at every instant.
	beside := fmt.Sprintf("%s.%d", cfg.Path, os.Getpid())
	_ = os.Remove(beside) // of a process that had this number, and was killed
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: beside})
	if err != nil {
		return nil, fmt.Errorf("handover: cannot listen at %s: %w", beside, err)
	}
	ln.SetUnlinkOnClose(false)
	o := &Offer{cfg: cfg, srv: srv, ln: ln, taken: make(chan struct{})}
	if err = os.Chmod(beside, 0o600); err == nil {
		if o.file, err = os.Lstat(beside); err == nil {
			err = os.Rename(beside, cfg.Path)
		}
	}
	if err != nil {
		_ = ln.Close()
		_ = os.Remove(beside)
		return nil, fmt.Errorf("handover: cannot listen at %s: %w", cfg.Path, err)
	}
	o.done.Go(o.serve)
	return o, nil
}

// Done returns a channel that is closed when the next process has taken over, so that the Server
// drains what is left. Listeners of Config.Also are to be closed then, as the next process accepts
// there. Any goroutine may call it.
func (o *Offer) Done() <-chan struct{} { return o.taken }

// Close ends the offer, unless a handover is under way: then it waits for the end of that. The
// Server goes on. Any goroutine may call it, but a loop's, and again.
func (o *Offer) Close() error {
	err := o.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	o.done.Wait()
	if now, e := os.Lstat(o.cfg.Path); e == nil && os.SameFile(now, o.file) {
		err = errors.Join(err, os.Remove(o.cfg.Path))
	}
	return err
}

// in is what package loop has for this package.
var in = inside.Take[inside.Handover[*loop.Server]]()

// serve hands over to one process after the other until that has succeeded.
func (o *Offer) serve() {
	defer o.ln.Close()
	for {
		nc, err := o.ln.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors, say
			o.srv.Logger.Error().Err(err).Msg("cannot accept the next process: it is tried again")
			time.Sleep(acceptAgain)
			continue
		}
		g := &giver{wire: wire{nc, o.cfg.Timeout}, srv: o.srv, also: o.cfg.Also, patience: o.cfg.Patience}
		err = g.give()
		if err == nil {
			o.srv.Logger.Info().Int("conns", g.conns).Msg("handed over to the next process")
			close(o.taken)
			go o.srv.Shutdown(context.Background()) // the rest drains
			return
		}
		o.srv.Logger.Error().Err(err).Int("conns", g.conns).Msg("the handover has failed: this process goes on")
	}
}

// A giver is the old process' side of one handover.
type giver struct {
	wire
	srv      *loop.Server
	also     map[string]net.Listener
	patience time.Duration
	life     *os.File // the write end of the pipe
	conns    int
	began    time.Time // of the batch

	inDoubt bool // a batch that the next process has not been told to serve
}

// give hands everything over. An error means that this process goes on.
func (g *giver) give() (err error) {
	defer g.Close()
	if err := g.greet(); err != nil {
		_ = g.send(kindRefusal, err.Error(), -1)
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	g.life = ours
	defer func() {
		if err != nil && !g.inDoubt {
			g.giveUp()
		}
		_ = ours.Close() // and so the next process serves what it has confirmed
	}()
	err = sockets.With(theirs, func(fd int) error { return g.send(kindLife, nil, fd) })
	_ = theirs.Close()
	if err != nil {
		return err
	}
	for _, b := range in.Bound(g.srv) {
		err := sockets.With(b.Listener, func(fd int) error { return g.send(kindListens, b.Addr, fd) })
		if err != nil {
			return err
		}
	}
	for name, ln := range g.also {
		if err := sockets.With(ln, func(fd int) error { return g.send(kindAlso, name, fd) }); err != nil {
			return err
		}
	}
	if err := g.send(kindStarted, nil, -1); err != nil {
		return err
	}
	if _, err := g.receive(kindStarted); err != nil {
		return fmt.Errorf("handover: the next process has not started: %w", err)
	}
	if err := g.giveConns(g.patience); err != nil {
		return err
	}
	g.began = time.Now()
	if err := g.giveBatch(nil); err != nil { // does it still live?
		return err
	}
	in.Retire(g.srv)
	err = g.send(kindRetired, nil, -1)
	if err == nil {
		err = g.giveConns(0) // what has come meanwhile
	}
	if err != nil {
		// The next process accepts, and has what has moved. This one cannot accept any more.
		g.srv.Logger.Error().Err(err).Msg("the last connections could not be handed over: they drain")
		return nil
	}
	_ = g.send(kindOver, g.srv.Stats().Conns, -1)
	return nil
}

// greet looks who is there.
func (g *giver) greet() error {
	if err := g.sameUser(); err != nil {
		return err
	}
	m, err := g.receive(kindHello)
	if err != nil {
		return err
	}
	var theirs greeting
	if err := json.Unmarshal(m.body, &theirs); err != nil || theirs.Protocol != "loopwheel" {
		return errors.New("handover: the other process does not speak this protocol")
	}
	if theirs.Version != version {
		return fmt.Errorf("handover: the other process speaks version %d, and this one %d: restart without a handover", theirs.Version, version)
	}
	return nil
}

// giveUp tells the next process that what it has not been given stays here. It comes before this
// process serves any of that again.
func (g *giver) giveUp() { _, _ = g.life.Write([]byte{byte(kindRefusal)}) }

// giveConns hands over the connections of all loops, again and again until none moves any more and
// the patience for those that cannot has come to its end. An empty batch tells the next process,
// when none has moved, that this one still asks.
func (g *giver) giveConns(patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(lookAgain) {
		before := g.conns
		for i := range g.srv.Loops() {
			for next := math.MaxInt; next > 0; {
				var batch []*inside.Moved
				g.began = time.Now()
				batch, next = in.Out(g.srv, i, next, batchSize)
				if len(batch) == 0 {
					continue
				}
				if err := g.giveBatch(batch); err != nil {
					return err
				}
			}
		}
		if g.conns == before && (g.srv.Stats().Conns == 0 || !time.Now().Before(end)) {
			return nil
		}
		if g.conns > before {
			continue
		}
		g.began = time.Now()
		if err := g.giveBatch(nil); err != nil {
			return err
		}
	}
}

// giveBatch hands over some connections. With an error they are this process' again, or lost if the
// next process died after it had confirmed them.
func (g *giver) giveBatch(batch []*inside.Moved) error {
	refused, err := g.offer(batch)
	if err != nil {
		g.giveUp()
		for _, m := range batch {
			g.takeBack(m)
		}
		return err
	}
	for _, i := range refused {
		if 0 <= i && i < len(batch) && batch[i] != nil {
			g.takeBack(batch[i])
			batch[i] = nil
		}
	}
	g.inDoubt = true
	if err = g.send(kindLetGo, g.began.UnixNano(), -1); err == nil {
		g.inDoubt = false
	}
	for _, m := range batch {
		if m != nil {
			g.conns++
			_ = m.Net.Close() // the copy of the next process goes on
		}
	}
	return err
}

// offer sends connections, and waits until the next process has them. It returns the numbers of
// those that it does not want.
func (g *giver) offer(batch []*inside.Moved) (refused []int, err error) {
	for _, m := range batch {
		err := sockets.With(m.Net, func(fd int) error { return g.send(kindConn, recordOf(m), fd) })
		if err != nil {
			return nil, err
		}
	}
	if err := g.send(kindBatchEnd, nil, -1); err != nil {
		return nil, err
	}
	m, err := g.receive(kindConfirm)
	if err != nil {
		return nil, err
	}
	return refused, json.Unmarshal(m.body, &refused)
}

// takeBack serves a connection here again.
func (g *giver) takeBack(m *inside.Moved) {
	m.Back = true
	if err := in.In(g.srv, m); err != nil {
		g.srv.Logger.Error().Err(err).Stringer("remote", m.Remote).Msg("a connection that did not move is lost")
		_ = m.Net.Close()
	}
}
