package aof

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A Policy says when what was written is synced to disk.
type Policy int32

// The policies.
const (
	EverySecond Policy = iota // a crash of the machine costs a second
	Always                    // before it counts as safe
	Never                     // when the system likes
)

// ErrClosed is the error of a cut that a Log has not come to when it was closed.
var ErrClosed = errors.New("aof: the log was closed")

// retryAfter is how long to wait before a write that has failed is tried again.
const retryAfter = 500 * time.Millisecond

// A Log is open for appending. Append, Cut and Appended are for its owner's goroutine; the others
// for any.
type Log struct {
	files  *Files
	policy atomic.Int32
	safe   func(offset int64, err error)

	appended atomic.Int64
	written  atomic.Int64
	failure  atomic.Pointer[error]

	mu   sync.Mutex
	buf  []byte
	cuts []cut

	wake   chan struct{}
	closed chan struct{}
	ended  chan struct{}

	// The writer's own.
	file    File
	out     []byte
	pos     int // bytes of out that are written
	outCuts []cut
	dirty   bool // written and not synced
	last    time.Time
	told    int64      // the offset that safe was called with last
	syncing chan error // not nil: a sync runs beside the writer, and its result comes here
	lost    bool       // a sync has failed: what is on disk is not known
}

// A cut is a place in the buffer at which the next file begins.
type cut struct {
	at   int
	done func(last string, err error)
}

// Start opens a Log for appending, after what is there, which must have been read. The Log calls
// safe on its goroutine with an offset among the bytes appended since Start, when all before that
// is as safe as the policy wants: on disk with Always, else handed to the system, where only a
// crash of the machine can lose it. With an error it says that writing has begun to fail.
func Start(files *Files, policy Policy, safe func(offset int64, err error)) (*Log, error) {
	file, err := files.grow(true)
	if err != nil {
		return nil, err
	}
	l := &Log{files: files, file: file, safe: safe, wake: make(chan struct{}, 1),
		closed: make(chan struct{}), ended: make(chan struct{}), last: time.Now()}
	l.policy.Store(int32(policy))
	go l.run()
	return l, nil
}

// SetPolicy changes when it syncs.
func (l *Log) SetPolicy(p Policy) {
	l.policy.Store(int32(p))
	l.kick()
}

// Policy returns when it syncs.
func (l *Log) Policy() Policy { return Policy(l.policy.Load()) }

// Append appends a command. It does not wait for anything.
func (l *Log) Append(args [][]byte) {
	l.mu.Lock()
	before := len(l.buf)
	l.buf = resp.AppendCommand(l.buf, args...)
	n := len(l.buf) - before
	l.mu.Unlock()
	l.appended.Add(int64(n))
	if before == 0 {
		l.kick()
	}
}

// Cut begins a new file with what is appended next. done is called on the Log's goroutine when all
// before is on disk, with the path of the file where that ends.
func (l *Log) Cut(done func(last string, err error)) {
	l.mu.Lock()
	l.cuts = append(l.cuts, cut{len(l.buf), done})
	l.mu.Unlock()
	l.kick()
}

// Appended returns how many bytes were appended since Start.
func (l *Log) Appended() int64 { return l.appended.Load() }

// Behind returns how many bytes wait in memory.
func (l *Log) Behind() int64 { return l.appended.Load() - l.written.Load() }

// Err returns why nothing can be written at the moment, nil if it can.
func (l *Log) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Size returns how many bytes the base and the files since have.
func (l *Log) Size() (base, incr int64) { return l.files.size() }

func (l *Log) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Close writes and syncs what was appended, and returns why that failed, if it did.
func (l *Log) Close() error {
	close(l.closed)
	<-l.ended
	return l.Err()
}

func (l *Log) run() {
	defer close(l.ended)
	tick := time.NewTicker(retryAfter)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			if l.failure.Load() == nil {
				l.flush(false)
			}
		case <-tick.C:
			l.flush(false)
		case err := <-l.syncing:
			l.endSync(err)
		case <-l.closed:
			l.flush(true)
			l.giveUp()
			_ = l.file.Close()
			return
		}
	}
}

// giveUp tells those who wait for a cut that it will not come.
func (l *Log) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range append(l.outCuts, l.cuts...) {
		c.done("", ErrClosed)
	}
}

// flush writes what there is, and syncs it if it is time to.
func (l *Log) flush(last bool) {
	if l.lost {
		return
	}
	for l.take() {
		if err := l.writeOut(); err != nil {
			l.failed(err)
			return
		}
		if l.Policy() == Always {
			if !l.sync() {
				return
			}
		}
	}
	l.failure.Store(nil)
	if written := l.written.Load(); l.Policy() != Always && written > l.told {
		l.told = written
		l.safe(written, nil)
	}
	switch {
	case last || l.dirty && l.Policy() == Always:
		l.sync()
	case l.dirty && l.syncing == nil && l.Policy() == EverySecond && time.Since(l.last) >= time.Second:
		l.beginSync()
	}
}

// beginSync syncs beside the writer, so that writes go on while the disk is slow.
func (l *Log) beginSync() {
	done, file := make(chan error, 1), l.file
	l.dirty, l.last, l.syncing = false, time.Now(), done
	go func() { done <- file.Sync() }()
}

// endSync takes the result of a sync, and reports false if that failed: then what the disk has
// cannot be known any more.
func (l *Log) endSync(err error) bool {
	if l.syncing = nil; err != nil {
		l.lost = true
		l.failed(fmt.Errorf("fsync failed, so that what the disk has is not known; end this server and look at the disk: %w", err))
	}
	return err == nil
}

func (l *Log) failed(err error) {
	first := l.failure.Load() == nil
	l.failure.Store(&err)
	if first {
		l.safe(0, err)
	}
}

// take gets what was appended, if all that was taken before is written.
func (l *Log) take() bool {
	if l.pos < len(l.out) || len(l.outCuts) > 0 {
		return true
	}
	const keep = 1 << 20
	spare := l.out[:0]
	if cap(spare) > keep {
		spare = nil
	}
	l.mu.Lock()
	l.out, l.buf = l.buf, spare
	l.outCuts, l.cuts = l.cuts, nil
	l.mu.Unlock()
	l.pos = 0
	return len(l.out) > 0 || len(l.outCuts) > 0
}

// writeOut writes l.out, and changes files where it is cut. What is not written stays.
func (l *Log) writeOut() error {
	for {
		end := len(l.out)
		if len(l.outCuts) > 0 {
			end = l.outCuts[0].at
		}
		if l.pos < end {
			n, err := l.file.Write(l.out[l.pos:end])
			l.pos += n
			l.written.Add(int64(n))
			l.dirty = l.dirty || n > 0
			if err != nil {
				return err
			}
		}
		if len(l.outCuts) == 0 {
			return nil
		}
		if err := l.nextFile(); err != nil {
			return err
		}
	}
}

// nextFile goes on in a new file, at a cut.
func (l *Log) nextFile() error {
	if l.dirty && !l.sync() {
		return l.Err()
	}
	last := l.file.Name()
	file, err := l.files.grow(false)
	done := l.outCuts[0].done
	l.outCuts = l.outCuts[1:]
	if err != nil { // the old one is as good
		done("", err)
		return nil
	}
	_ = l.file.Close()
	l.file = file
	done(last, nil)
	return nil
}

// sync waits until all that was written is on disk. It reports false as endSync does.
func (l *Log) sync() bool {
	if l.syncing != nil && !l.endSync(<-l.syncing) {
		return false
	}
	if !l.dirty {
		return true
	}
	offset := l.written.Load()
	l.last = time.Now()
	if !l.endSync(l.file.Sync()) {
		return false
	}
	l.dirty, l.told = false, offset
	l.safe(offset, nil)
	return true
}
