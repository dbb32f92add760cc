//go:build unix

package handover

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// A message is a head of its kind, a number and the length of its body, and the body. Some carry a
// descriptor with the first byte.
type message struct {
	kind kind
	n    int
	body []byte
	file *os.File // what came with it
}

const (
	headSize   = 9
	maxHello   = 4 << 10
	maxMessage = 16 << 20 // of a connection, with its buffers
)

func (m message) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
}

// A line is the socket between the two processes. One goroutine writes.
type line struct {
	*net.UnixConn
	in   chan message // closed at the end
	rest []byte       // of a message that was half written
	done chan struct{}
	once sync.Once
}

func newLine(nc *net.UnixConn) *line {
	return &line{UnixConn: nc, in: make(chan message), done: make(chan struct{})}
}

// hang ends the line on this side.
func (l *line) hang() {
	l.once.Do(func() {
		close(l.done)
		_ = l.Close()
	})
}

// listen reads until the end of the line, on a goroutine of its own.
func (l *line) listen() {
	defer close(l.in)
	_ = l.SetReadDeadline(time.Time{})
	for {
		m, err := l.read(maxMessage)
		if err != nil {
			return
		}
		select {
		case l.in <- m:
		case <-l.done:
			m.close()
			return
		}
	}
}

// errLate is the error of a message that was not written in time. The rest of it follows when the
// next one is written.
var errLate = errors.New("handover: the other process does not read")

// write writes a message, with a descriptor unless that is nil.
func (l *line) write(m message, from any, deadline time.Time) error {
	text := binary.BigEndian.AppendUint32([]byte{byte(m.kind)}, uint32(m.n))
	text = binary.BigEndian.AppendUint32(text, uint32(len(m.body)))
	text = append(text, m.body...)
	_ = l.SetWriteDeadline(deadline)
	if err := l.flush(); err != nil {
		return err
	}
	n := 0
	if from != nil {
		err := sockets.With(from, func(fd int) (err error) {
			n, _, err = l.WriteMsgUnix(text, syscall.UnixRights(fd), nil)
			return err
		})
		if err = late(err); err != nil && !errors.Is(err, errLate) {
			return err
		}
	}
	l.rest = text[n:] // if it is late it goes without the descriptor
	return l.flush()
}

// flush writes what is left of a message.
func (l *line) flush() error {
	n, err := l.Write(l.rest)
	if l.rest = l.rest[n:]; len(l.rest) == 0 {
		return nil
	}
	return late(err)
}

func late(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errLate
	}
	return err
}

// read reads a message whose body has at most max bytes. It believes a length only as far as bytes
// come.
func (l *line) read(max int64) (m message, err error) {
	head, oob := make([]byte, headSize), make([]byte, syscall.CmsgSpace(4*8)) // more than one descriptor is a mistake
	n, oobn, _, _, err := l.ReadMsgUnix(head, oob)
	if oobn > 0 {
		m.file = fileOf(oob[:oobn])
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err == nil {
		_, err = io.ReadFull(l, head[n:])
	}
	if err == nil {
		m.kind, m.n = kind(head[0]), int(binary.BigEndian.Uint32(head[1:]))
		size := int64(binary.BigEndian.Uint32(head[5:]))
		var body bytes.Buffer
		if size > max {
			err = fmt.Errorf("handover: a message of %d bytes is too long", size)
		} else if _, err = io.CopyN(&body, l, size); err == nil {
			m.body = body.Bytes()
		}
	}
	if err != nil {
		m.close()
	}
	return m, err
}

// fileOf returns the first descriptor of a control message, and closes all others.
func fileOf(oob []byte) (f *os.File) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		fds, err := syscall.ParseUnixRights(&m)
		if err != nil {
			continue
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			if f == nil {
				f = os.NewFile(uintptr(fd), "handover")
			} else {
				_ = unix.Close(fd)
			}
		}
	}
	return f
}

// A baton is the pipe whose byte decides who owns a batch. Its description, with O_NONBLOCK, is
// shared by both processes: os.File.Fd would make it block for both.
type baton struct {
	r, w *os.File // w: only the old process has it
}

func newBaton() (b baton, err error) {
	b.r, b.w, err = os.Pipe()
	return b, err
}

// put puts it down for batch n.
func (b baton) put(n int) error {
	_, err := b.w.Write([]byte{byte(n)})
	return err
}

// take reports whether it was there, for batch n, and has it then.
func (b baton) take(n int) bool {
	var p [1]byte
	got := 0
	_ = sockets.With(b.r, func(fd int) (err error) {
		for {
			if got, err = unix.Read(fd, p[:]); err != unix.EINTR {
				return err
			}
		}
	})
	return got == 1 && p[0] == byte(n)
}

func (b baton) close() {
	_ = b.r.Close()
	if b.w != nil {
		_ = b.w.Close()
	}
}

// The tags of a record's fields. A field whose tag is even may be skipped by a process that does
// not know it; a connection with one that is odd is refused then.
const (
	tagAddr      = 1
	tagOpened    = 2
	tagLocal     = 3
	tagLastRead  = 4
	tagRemote    = 5
	tagLastWrite = 6
	tagInput     = 7
	tagIdle      = 8
	tagOutput    = 9
	tagFrozen    = 10
	tagCodec     = 11
	tagHandler   = 13
	tagTLV       = 15
	tagFlags     = 17
	tagTLS       = 19
)

const (
	flagOutputEnded = 1 << iota
	flagPaused
)

func appendField(b []byte, tag byte, value []byte) []byte {
	b = binary.AppendUvarint(append(b, tag), uint64(len(value)))
	return append(b, value...)
}

// recordOf returns the body of a connection's message.
func recordOf(m *inside.Moved) (b []byte) {
	bytesOf := func(tag byte, value []byte) {
		if len(value) > 0 {
			b = appendField(b, tag, value)
		}
	}
	number := func(tag byte, d int64) { b = appendField(b, tag, binary.AppendVarint(nil, d)) }
	bytesOf(tagAddr, []byte(m.Addr))
	bytesOf(tagLocal, addressOf(m.Local))
	bytesOf(tagRemote, addressOf(m.Remote))
	bytesOf(tagInput, m.Input)
	bytesOf(tagOutput, m.Output)
	bytesOf(tagTLS, m.TLS)
	bytesOf(tagCodec, m.Codec)
	bytesOf(tagHandler, m.Handler)
	for _, t := range m.TLVs {
		b = appendField(b, tagTLV, append([]byte{t.Type}, t.Value...))
	}
	flags := byte(0)
	if m.OutputEnded {
		flags |= flagOutputEnded
	}
	if m.Paused {
		flags |= flagPaused
	}
	if flags != 0 {
		b = appendField(b, tagFlags, []byte{flags})
	}
	number(tagOpened, int64(m.Opened))
	number(tagLastRead, int64(m.LastRead))
	number(tagLastWrite, int64(m.LastWrite))
	number(tagIdle, int64(m.IdleTimeout))
	number(tagFrozen, m.Frozen.UnixNano())
	return b
}

var errRecord = errors.New("handover: a record of a connection that this process does not understand")

// movedOf returns the connection of a record.
func movedOf(b []byte) (*inside.Moved, error) {
	m := &inside.Moved{LastRead: -1, LastWrite: -1, IdleTimeout: -1}
	for len(b) > 0 {
		tag := b[0]
		n, size := binary.Uvarint(b[1:])
		if size <= 0 || n > uint64(len(b)-1-size) {
			return nil, errRecord
		}
		value := b[1+size:][:n]
		b = b[1+size+int(n):]
		number, _ := binary.Varint(value)
		var err error
		switch tag {
		case tagAddr:
			m.Addr = string(value)
		case tagLocal:
			m.Local, err = addrOf(value)
		case tagRemote:
			m.Remote, err = addrOf(value)
		case tagInput:
			m.Input = value
		case tagOutput:
			m.Output = value
		case tagTLS:
			m.TLS = value
		case tagCodec:
			m.Codec = value
		case tagHandler:
			m.Handler = value
		case tagTLV:
			if len(value) == 0 {
				return nil, errRecord
			}
			m.TLVs = append(m.TLVs, inside.TLV{Type: value[0], Value: value[1:]})
		case tagFlags:
			if len(value) != 1 || value[0]&^(flagOutputEnded|flagPaused) != 0 {
				return nil, errRecord
			}
			m.OutputEnded, m.Paused = value[0]&flagOutputEnded != 0, value[0]&flagPaused != 0
		case tagOpened:
			m.Opened = time.Duration(number)
		case tagLastRead:
			m.LastRead = time.Duration(number)
		case tagLastWrite:
			m.LastWrite = time.Duration(number)
		case tagIdle:
			m.IdleTimeout = time.Duration(number)
		case tagFrozen:
			m.Frozen = time.Unix(0, number)
		default:
			if tag%2 == 1 {
				return nil, errRecord
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Local == nil || m.Remote == nil {
		return nil, errRecord
	}
	return m, nil
}

func addressOf(a net.Addr) []byte { return []byte(a.Network() + " " + a.String()) }

func addrOf(b []byte) (net.Addr, error) {
	network, addr, _ := bytes.Cut(b, []byte(" "))
	switch string(network) {
	case "tcp":
		ap, err := netip.ParseAddrPort(string(addr))
		return net.TCPAddrFromAddrPort(ap), err
	case "unix":
		return &net.UnixAddr{Net: "unix", Name: string(addr)}, nil
	}
	return nil, fmt.Errorf("handover: an address of network %q", network)
}

// numbersOf returns the body of a list of numbers, and numbersIn those of a body.
func numbersOf(all []int) (b []byte) {
	for _, n := range all {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

func numbersIn(b []byte) (all []int) {
	for len(b) > 0 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return all
		}
		all, b = append(all, int(n)), b[size:]
	}
	return all
}
