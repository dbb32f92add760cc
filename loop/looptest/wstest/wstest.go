// Package wstest turns a looptest.Peer into a WebSocket client that behaves as a browser does: it
// performs the handshake, masks frames, joins fragments, and answers pings and close frames.
//
//	synctest.Test(t, func(t *testing.T) {
//		srv := looptest.Start(t, &loop.Server{Codec: &websocket.Codec{}, Accept: accept})
//		p := wstest.Open(t, srv, "ws://example.com/chat", nil)
//		p.Send("hello")
//		if got := p.Received(); !slices.Equal(got, []string{"hi"}) {
//			t.Errorf("got %q", got)
//		}
//	})
//
// The frames come from github.com/gobwas/ws, not from the codec under test. The client does not
// offer compression.
package wstest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/gobwas/ws"

	"github.com/loopwheel/loopwheel/codec/websocket"
	"github.com/loopwheel/loopwheel/loop/looptest"
)

// A Peer is a WebSocket client in memory. The methods of the embedded looptest.Peer act on the
// underlying connection: Write sends raw bytes, such as malformed frames, and Close closes without
// a close frame.
type Peer struct {
	*looptest.Peer

	mu       sync.Mutex // what follows is written by the goroutine that reads
	wire     []byte     // bytes that are not a whole answer or frame yet
	request  *http.Request
	response *http.Response
	messages []Message
	message  Message // its fragments so far
	pings    int
	mute     bool
	close    *websocket.CloseError
	err      error
}

// A Message is a message that the server has sent.
type Message struct {
	Kind websocket.Kind
	Data string
}

// Open connects to Server.Addr and performs the handshake for target, such as
// "ws://example.com/chat?room=1" or "/chat". header is sent with the request and may be nil. The
// test fails at once, as by Fatal, unless the server answers 101 immediately.
func Open(t testing.TB, srv *looptest.Server, target string, header http.Header) *Peer {
	t.Helper()
	p := Upgrade(t, srv.Open(), target, header)
	switch r := p.Response(); {
	case r == nil:
		t.Fatalf("wstest: no answer to the handshake; the connection has ended with %v", p.Reason())
	case r.StatusCode != http.StatusSwitchingProtocols:
		t.Fatalf("wstest: the handshake was answered with %s", r.Status)
	}
	return p
}

// Upgrade is like Open for an existing connection, such as one of looptest.Server's OpenFrom or
// OpenTLS. It does not require an answer: it returns even if the server has not answered yet, or
// has refused. See Response.
func Upgrade(t testing.TB, on *looptest.Peer, target string, header http.Header) *Peer {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, target, nil)
	if err != nil {
		t.Fatalf("wstest: the target: %v", err)
	}
	if r.Host == "" {
		r.Host = "localhost"
	}
	if header != nil {
		r.Header = header.Clone()
	}
	var key [16]byte
	_, _ = rand.Read(key[:]) // it never fails
	for name, value := range map[string]string{
		"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": base64.StdEncoding.EncodeToString(key[:]),
	} {
		r.Header.Set(name, value)
	}
	var text bytes.Buffer
	if err := r.Write(&text); err != nil {
		t.Fatalf("wstest: the request: %v", err)
	}
	p := &Peer{Peer: on, request: r}
	on.Answer(p.take)
	_, _ = on.Write(text.Bytes()) // a server that has closed gives no Response
	return p
}

// Response returns the server's answer to the handshake, or nil if there is none yet. The body of
// an answer other than 101 can be read once the server has sent all of it.
func (p *Peer) Response() *http.Response {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.response
}

// Send sends each text as a message and waits for the effects.
func (p *Peer) Send(texts ...string) {
	for _, s := range texts {
		p.write(ws.NewTextFrame([]byte(s)))
	}
}

// SendBinary is like Send for binary messages.
func (p *Peer) SendBinary(messages ...string) {
	for _, s := range messages {
		p.write(ws.NewBinaryFrame([]byte(s)))
	}
}

// Ping sends a ping. Received does not show the server's pong.
func (p *Peer) Ping(data string) { p.write(ws.NewPingFrame([]byte(data))) }

// CloseWith sends a close frame, as WebSocket.close does in a page. A code of 0 sends an empty one.
func (p *Peer) CloseWith(code websocket.StatusCode, reason string) {
	if code == 0 {
		p.write(ws.NewCloseFrame(nil))
		return
	}
	p.write(ws.NewCloseFrame(ws.NewCloseFrameBody(ws.StatusCode(code), reason)))
}

// Mute makes the peer leave pings and close frames unanswered, like a client that has lost its
// network.
func (p *Peer) Mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = true
}

// Received returns the payloads of the messages that the server has sent since the last call of
// Received or Messages.
func (p *Peer) Received() (data []string) {
	for _, m := range p.Messages() {
		data = append(data, m.Data)
	}
	return data
}

// Messages is like Received, but includes the kind of each message.
func (p *Peer) Messages() []Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.messages
	p.messages = nil
	return m
}

// Pings returns how many pings the server has sent.
func (p *Peer) Pings() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pings
}

// CloseError returns the code and reason of the server's close frame, or nil if none has come. If
// the frame has no code, the code is websocket.StatusNone.
func (p *Peer) CloseError() *websocket.CloseError {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.close
}

// Err returns the first violation of RFC 6455 in the server's answer or frames, or nil. Data after
// a violation is ignored.
func (p *Peer) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Peer) write(f ws.Frame) { _, _ = p.Write(ws.MustCompileFrame(ws.MaskFrame(f))) }

// take is what the connection's Answer calls.
func (p *Peer) take(received []byte) (reply []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wire = append(p.wire, received...)
	if !p.answered() {
		return nil
	}
	for p.err == nil {
		in := bytes.NewReader(p.wire)
		f, err := ws.ReadFrame(in)
		if err != nil {
			if err != io.EOF && err != io.ErrUnexpectedEOF {
				p.err = err
			}
			return reply
		}
		p.wire = p.wire[len(p.wire)-in.Len():]
		reply = append(reply, p.frame(f)...)
	}
	return reply
}

// answered reads the answer to the handshake once its head is there, and reports whether frames
// follow.
func (p *Peer) answered() bool {
	if p.response == nil || p.response.StatusCode != http.StatusSwitchingProtocols {
		if !bytes.Contains(p.wire, []byte("\r\n\r\n")) {
			return false
		}
		in := bytes.NewReader(p.wire)
		buffered := bufio.NewReader(in)
		p.response, p.err = http.ReadResponse(buffered, p.request)
		if p.err != nil || p.response.StatusCode != http.StatusSwitchingProtocols {
			return false // and read again, from the start, when more of the body has come
		}
		p.wire = slices.Clone(p.wire[len(p.wire)-in.Len()-buffered.Buffered():])
	}
	return true
}

// frame takes a frame and returns what a browser answers by itself.
func (p *Peer) frame(f ws.Frame) (reply []byte) {
	state := ws.StateClientSide
	if p.message.Kind != 0 {
		state = state.Set(ws.StateFragmented)
	}
	if p.err = ws.CheckHeader(f.Header, state); p.err != nil {
		return nil
	}
	switch f.Header.OpCode {
	case ws.OpPing:
		p.pings++
		if !p.mute {
			return ws.MustCompileFrame(ws.MaskFrame(ws.NewPongFrame(f.Payload)))
		}
	case ws.OpPong:
	case ws.OpClose:
		p.close = &websocket.CloseError{Code: websocket.StatusNone}
		if len(f.Payload) > 0 {
			code, reason := ws.ParseCloseFrameData(f.Payload)
			p.close.Code, p.close.Reason = websocket.StatusCode(code), reason
		}
		if !p.mute {
			return ws.MustCompileFrame(ws.MaskFrame(ws.NewCloseFrame(f.Payload)))
		}
	default:
		if f.Header.OpCode != ws.OpContinuation {
			p.message.Kind = websocket.Kind(f.Header.OpCode)
		}
		p.message.Data += string(f.Payload)
		if f.Header.Fin {
			p.messages = append(p.messages, p.message)
			p.message = Message{}
		}
	}
	return nil
}
