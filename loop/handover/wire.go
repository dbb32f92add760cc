//go:build unix

package handover

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/internal/inside"
	"github.com/loopwheel/loopwheel/loop/internal/sockets"
)

// version is that of the messages below. It changes when a process of before would not understand.
const version = 1

// A kind is what a message is. Each is a byte, four bytes of length, and JSON; some carry a
// descriptor with the first byte.
type kind byte

const (
	kindHello    kind = 'H' // new: greeting
	kindRefusal  kind = 'X' // old: a text; the end
	kindLife     kind = 'P' // old: the read end of the pipe that only the old process holds
	kindListens  kind = 'L' // old: an address, with its listener
	kindAlso     kind = 'M' // old: a name, with another listener
	kindStarted  kind = 'S' // old: there are no more listeners; then new: my Server runs
	kindConn     kind = 'C' // old: a record, with its socket
	kindBatchEnd kind = 'B' // old: confirm these
	kindConfirm  kind = 'A' // new: I have them, but for those with these numbers
	kindLetGo    kind = 'K' // old: they are yours; when they were taken off their loops, in ns of Unix time
	kindRetired  kind = 'R' // old: I accept no more, and end; what has come meanwhile follows
	kindOver     kind = 'E' // old: that was all; how many connections stay
)

// maxMessage bounds a message. Output that waits may be large.
const maxMessage = 1 << 30

type greeting struct {
	Protocol string
	Version  int
}

// A record is an inside.Moved on its way.
type record struct {
	Addr          string
	Local, Remote address
	TLVs          []inside.TLV `json:",omitempty"`
	Input         []byte       `json:",omitempty"`
	Output        []byte       `json:",omitempty"`
	OutputEnded   bool         `json:",omitempty"`
	Opened        time.Duration
	LastRead      time.Duration
	LastWrite     time.Duration
	Codec         []byte `json:",omitempty"`
	Handler       []byte `json:",omitempty"`
}

// An address is a net.Addr of TCP or of a unix socket.
type address struct{ Network, Addr string }

func addressOf(a net.Addr) address {
	if a == nil {
		return address{}
	}
	return address{a.Network(), a.String()}
}

func (a address) net() (net.Addr, error) {
	switch a.Network {
	case "tcp":
		ap, err := netip.ParseAddrPort(a.Addr)
		return net.TCPAddrFromAddrPort(ap), err
	case "unix":
		return &net.UnixAddr{Net: "unix", Name: a.Addr}, nil
	}
	return nil, fmt.Errorf("handover: an address of network %q", a.Network)
}

func recordOf(m *inside.Moved) record {
	return record{Addr: m.Addr, Local: addressOf(m.Local), Remote: addressOf(m.Remote), TLVs: m.TLVs,
		Input: m.Input, Output: m.Output, OutputEnded: m.OutputEnded,
		Opened: m.Opened, LastRead: m.LastRead, LastWrite: m.LastWrite, Codec: m.Codec, Handler: m.Handler}
}

// moved returns the connection of a record with its socket.
func (r record) moved(nc net.Conn) (*inside.Moved, error) {
	local, err := r.Local.net()
	if err != nil {
		return nil, err
	}
	remote, err := r.Remote.net()
	if err != nil {
		return nil, err
	}
	return &inside.Moved{Net: nc, Addr: r.Addr, Local: local, Remote: remote, TLVs: r.TLVs,
		Input: r.Input, Output: r.Output, OutputEnded: r.OutputEnded,
		Opened: r.Opened, LastRead: r.LastRead, LastWrite: r.LastWrite, Codec: r.Codec, Handler: r.Handler}, nil
}

// A wire is a connection between the two processes.
type wire struct {
	*net.UnixConn
	timeout time.Duration
}

// send sends a message, with a descriptor unless that is negative.
func (w wire) send(k kind, v any, fd int) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(body) > maxMessage {
		return fmt.Errorf("handover: a message of %d bytes is too long", len(body))
	}
	if err := w.SetDeadline(time.Now().Add(w.timeout)); err != nil {
		return err
	}
	head := binary.BigEndian.AppendUint32([]byte{byte(k)}, uint32(len(body)))
	var rights []byte
	if fd >= 0 {
		rights = syscall.UnixRights(fd)
	}
	if _, _, err = w.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = w.Write(body)
	return err
}

// A message is what was received. file is nil if it had no descriptor.
type message struct {
	kind kind
	body []byte
	file *os.File
}

// receive waits for a message. Only the kinds that are wanted are no error.
func (w wire) receive(wanted ...kind) (m message, err error) {
	return w.receiveBy(time.Now().Add(w.timeout), wanted...)
}

// receiveBy is receive with another deadline; the zero Time is none.
func (w wire) receiveBy(deadline time.Time, wanted ...kind) (m message, err error) {
	if err := w.SetDeadline(deadline); err != nil {
		return m, err
	}
	head, oob := make([]byte, 5), make([]byte, syscall.CmsgSpace(4*8)) // more than one descriptor is a mistake
	n, oobn, _, _, err := w.ReadMsgUnix(head, oob)
	if oobn > 0 {
		m.file = fileOf(oob[:oobn])
	}
	if n == 0 && err == nil {
		err = io.EOF
	}
	if err == nil {
		_, err = io.ReadFull(w, head[n:])
	}
	if err == nil {
		m.kind = kind(head[0])
		m.body, err = w.body(int64(binary.BigEndian.Uint32(head[1:])))
	}
	if err != nil {
		m.close()
		return m, err
	}
	for _, k := range wanted {
		if m.kind == k {
			return m, nil
		}
	}
	m.close()
	if m.kind == kindRefusal {
		return m, fmt.Errorf("handover: the other process says: %s", m.body)
	}
	return m, fmt.Errorf("handover: the other process sent a message %q, which does not belong here", m.kind)
}

// body reads n bytes, and believes a length only as far as bytes come.
func (w wire) body(n int64) ([]byte, error) {
	if n > maxMessage {
		return nil, fmt.Errorf("handover: a message of %d bytes is too long", n)
	}
	var b bytes.Buffer
	if _, err := io.CopyN(&b, w, n); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (m message) close() {
	if m.file != nil {
		_ = m.file.Close()
	}
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

// sameUser returns an error unless the other process is of this one's user, or of root.
func (w wire) sameUser() error {
	var uid int
	err := sockets.With(w.UnixConn, func(fd int) (err error) {
		uid, err = peerUser(fd)
		return err
	})
	if err != nil {
		return fmt.Errorf("handover: cannot tell whose the other process is: %w", err)
	}
	if uid != os.Getuid() && uid != 0 {
		return fmt.Errorf("handover: the other process is of user %d, and not of %d", uid, os.Getuid())
	}
	return nil
}
