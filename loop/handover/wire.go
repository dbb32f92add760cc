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
	"slices"
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

	tooLong bool // the end is not the other process': a message had more than maxMessage
}

var errTooLong = errors.New("handover: a message is too long")

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
			l.tooLong = errors.Is(err, errTooLong)
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

// errLate is in the error of a message that was not written in time. The rest of it follows when the
// next one is written.
var errLate = errors.New("handover: Timeout is over")

// write writes a message, with a descriptor unless that is nil.
func (l *line) write(m message, from any, deadline time.Time) error {
	text := binary.BigEndian.AppendUint32([]byte{byte(m.kind)}, uint32(m.n))
	text = binary.BigEndian.AppendUint32(text, uint32(len(m.body)))
	text = append(text, m.body...)
	left := time.Until(deadline)
	_ = l.SetWriteDeadline(deadline)
	if err := l.flush(); err != nil {
		return late(err, left)
	}
	n := 0
	if from != nil {
		err := sockets.With(from, func(fd int) (err error) {
			n, _, err = l.WriteMsgUnix(text, syscall.UnixRights(fd), nil)
			return err
		})
		if err = late(err, left); err != nil && !errors.Is(err, errLate) {
			return err
		}
	}
	l.rest = text[n:] // if it is late it goes without the descriptor
	return late(l.flush(), left)
}

// flush writes what is left of a message.
func (l *line) flush() error {
	n, err := l.Write(l.rest)
	if l.rest = l.rest[n:]; len(l.rest) == 0 {
		return nil
	}
	return err
}

// late makes an errLate of an error of writing that says how long the other process had: if that is
// no time, it is not the other process that was slow.
func late(err error, left time.Duration) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w, and the other process has not read a message in the %v that were left", errLate, max(0, left).Round(time.Millisecond))
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
			err = fmt.Errorf("%w: %d bytes", errTooLong, size)
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

// isLeft waits until the old process has closed its end, or has ended, and reports whether the baton
// is still there. It is called in the new process.
func (b baton) isLeft() bool {
	for {
		var p [1]unix.PollFd
		err := sockets.With(b.r, func(fd int) error {
			p[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
			if _, err := unix.Poll(p[:], 0); err != unix.EINTR {
				return err
			}
			return nil
		})
		if err != nil || p[0].Revents&unix.POLLHUP != 0 {
			return err == nil && p[0].Revents&unix.POLLIN != 0
		}
		time.Sleep(lookAgain)
	}
}

func (b baton) close() {
	_ = b.r.Close()
	if b.w != nil {
		_ = b.w.Close()
	}
}

// A field of a record. One whose tag is even may be skipped by a process that does not know it; a
// connection with another one is refused then.
type field struct {
	tag byte
	at  any // a pointer to the value; zero values are left out, except for numbers
}

func fieldsOf(m *inside.Moved) []field {
	return []field{
		{1, &m.Addr}, {3, &m.Local}, {5, &m.Remote}, {7, &m.Input}, {9, &m.Output}, {11, &m.Codec}, {13, &m.Handler},
		{15, &m.TLVs}, {17, &m.OutputEnded}, {19, &m.TLS}, {21, &m.Paused}, {23, &m.Pipe},
		{2, &m.Opened}, {4, &m.LastRead}, {6, &m.LastWrite}, {8, &m.IdleTimeout}, {10, &m.Frozen}, {12, &m.Piped},
		{25, &m.Port}, {27, &m.At}, {14, &m.BytesIn}, {16, &m.BytesOut}, {18, &m.Replies},
	}
}

// recordOf returns the body of a connection's message.
func recordOf(m *inside.Moved) (b []byte) {
	for _, f := range fieldsOf(m) {
		var value []byte
		switch at := f.at.(type) {
		case *string:
			value = []byte(*at)
		case *[]byte:
			value = *at
		case *net.Addr:
			if *at != nil {
				value = []byte((*at).Network() + " " + (*at).String())
			}
		case *bool:
			if *at {
				value = []byte{1}
			}
		case *uint64:
			if *at != 0 {
				value = binary.AppendUvarint(nil, *at)
			}
		case *time.Duration:
			value = binary.AppendVarint(nil, int64(*at))
		case *time.Time:
			value = binary.AppendVarint(nil, at.UnixNano())
		case *[]inside.TLV:
			for _, t := range *at {
				b = appendField(b, f.tag, append([]byte{t.Type}, t.Value...))
			}
		}
		if len(value) > 0 {
			b = appendField(b, f.tag, value)
		}
	}
	return b
}

func appendField(b []byte, tag byte, value []byte) []byte {
	b = binary.AppendUvarint(append(b, tag), uint64(len(value)))
	return append(b, value...)
}

var errRecord = errors.New("handover: a record of a connection that this process does not understand")

// movedOf returns the connection of a record.
func movedOf(b []byte) (*inside.Moved, error) {
	m := &inside.Moved{LastRead: -1, LastWrite: -1, IdleTimeout: -1}
	fields := fieldsOf(m)
	for len(b) > 0 {
		tag := b[0]
		n, size := binary.Uvarint(b[1:])
		if size <= 0 || n == 0 || n > uint64(len(b)-1-size) {
			return nil, errRecord
		}
		value := b[1+size:][:n]
		b = b[1+size+int(n):]
		i := slices.IndexFunc(fields, func(f field) bool { return f.tag == tag })
		if i < 0 {
			if tag%2 == 1 {
				return nil, errRecord
			}
			continue
		}
		number, _ := binary.Varint(value)
		var err error
		switch at := fields[i].at.(type) {
		case *string:
			*at = string(value)
		case *[]byte:
			*at = value
		case *net.Addr:
			*at, err = addrOf(value)
		case *bool:
			*at = true
		case *uint64:
			*at, _ = binary.Uvarint(value)
		case *time.Duration:
			*at = time.Duration(number)
		case *time.Time:
			*at = time.Unix(0, number)
		case *[]inside.TLV:
			*at = append(*at, inside.TLV{Type: value[0], Value: value[1:]})
		}
		if err != nil {
			return nil, err
		}
	}
	if m.Local == nil || m.Remote == nil && m.Port == 0 {
		return nil, errRecord
	}
	return m, nil
}

func addrOf(b []byte) (net.Addr, error) {
	network, addr, _ := bytes.Cut(b, []byte(" "))
	switch string(network) {
	case "tcp":
		ap, err := netip.ParseAddrPort(string(addr))
		return net.TCPAddrFromAddrPort(ap), err
	case "udp":
		ap, err := netip.ParseAddrPort(string(addr))
		return net.UDPAddrFromAddrPort(ap), err
	case "unix":
		return &net.UnixAddr{Net: "unix", Name: string(addr)}, nil
	}
	return nil, fmt.Errorf("handover: an address of network %q", network)
}
