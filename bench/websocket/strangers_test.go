package websocket

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	coder "github.com/coder/websocket"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
	gorilla "github.com/gorilla/websocket"
)

// A stranger starts somebody else's server, which echoes messages as what they were, in fragments
// if it can; asked to, it pings or closes. It returns its URL, and where it says what it hears
// besides messages.
type stranger func(t *testing.T, compress bool) (url string, heard chan string)

var strangers = map[string]stranger{
	"gorilla": gorillaServer, "coder": coderServer, "gobwas": gobwasServer,
	"npm": func(t *testing.T, compress bool) (string, chan string) { return nodeServer(t, compress, "") },
}

// serveHTTP serves until the test ends.
func serveHTTP(t *testing.T, f http.HandlerFunc) (url string) {
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return strings.Replace(srv.URL, "http://", "ws://", 1) + "/"
}

func gorillaServer(t *testing.T, compress bool) (url string, heard chan string) {
	heard = make(chan string, 100)
	upgrader := gorilla.Upgrader{EnableCompression: compress, WriteBufferSize: 1000} // larger messages go in fragments
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			heard <- err.Error()
			return
		}
		defer c.Close()
		c.SetReadLimit(maxMessage)
		c.SetPongHandler(func(s string) error { heard <- "pong " + s; return nil })
		for err == nil {
			var kind int
			var msg []byte
			kind, msg, err = c.ReadMessage()
			switch {
			case err != nil:
				heard <- closedBy(err)
			case string(msg) == "please ping":
				err = c.WriteControl(gorilla.PingMessage, []byte("are you there?"), time.Now().Add(time.Minute))
			case string(msg) == "please close":
				err = c.WriteMessage(gorilla.CloseMessage, gorilla.FormatCloseMessage(4001, "you asked for it"))
			default:
				gorillaSend(t, c, kind, msg)
			}
		}
	}), heard
}

func closedBy(err error) string {
	if e, ok := errors.AsType[*gorilla.CloseError](err); ok {
		return fmt.Sprintf("closed %d %s", e.Code, e.Text)
	}
	return err.Error()
}

func coderServer(t *testing.T, compress bool) (url string, heard chan string) {
	heard = make(chan string, 100)
	options := &coder.AcceptOptions{CompressionMode: coder.CompressionDisabled}
	if compress {
		options.CompressionMode = coder.CompressionNoContextTakeover
	}
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := coder.Accept(w, r, options)
		if err != nil {
			heard <- err.Error()
			return
		}
		defer func() { _ = c.CloseNow() }()
		c.SetReadLimit(maxMessage + 1)
		for ctx := context.Background(); ; {
			kind, msg, err := c.Read(ctx)
			switch {
			case err != nil:
				e, _ := errors.AsType[coder.CloseError](err)
				heard <- strings.TrimSuffix(fmt.Sprintf("closed %d %s", coder.CloseStatus(err), e.Reason), " ")
				return
			case string(msg) == "please ping":
				go func() { // the pong is read by the reader
					if c.Ping(ctx) == nil {
						heard <- "pong are you there?"
					}
				}()
			case string(msg) == "please close":
				go func() { _ = c.Close(4001, "you asked for it") }()
			default:
				coderSend(t, ctx, c, kind, msg, 5)
			}
		}
	}), heard
}

// gobwasServer is by hand, as one writes with that library.
func gobwasServer(t *testing.T, compress bool) (url string, heard chan string) {
	heard = make(chan string, 100)
	return serveHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		var upgrader ws.HTTPUpgrader
		if compress {
			extension := wsflate.Extension{Parameters: wsflate.DefaultParameters}
			upgrader.Negotiate = extension.Negotiate
		}
		nc, rw, _, err := upgrader.Upgrade(r, w)
		if err != nil {
			heard <- err.Error()
			return
		}
		defer nc.Close()
		for {
			f, err := ws.ReadFrame(rw)
			if err != nil {
				heard <- err.Error()
				return
			}
			ws.Cipher(f.Payload, f.Header.Mask, 0)
			if word := gobwasAnswer(nc, f, compress); word != "" {
				heard <- word
			}
			if f.Header.OpCode == ws.OpClose {
				return
			}
		}
	}), heard
}

// gobwasAnswer returns what is heard, if f is no message.
func gobwasAnswer(nc net.Conn, f ws.Frame, compress bool) (word string) {
	switch f.Header.OpCode {
	case ws.OpPing:
		_ = ws.WriteFrame(nc, ws.NewPongFrame(f.Payload))
		return ""
	case ws.OpPong:
		return "pong " + string(f.Payload)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(f.Payload)
		_ = ws.WriteFrame(nc, ws.NewCloseFrame(f.Payload))
		return strings.TrimSuffix(fmt.Sprintf("closed %d %s", code, reason), " ")
	}
	msg := f.Payload
	if f.Header.Rsv1() {
		var err error
		if msg, err = wsflate.DefaultHelper.Decompress(msg); err != nil {
			return err.Error()
		}
	}
	switch string(msg) {
	case "please ping":
		_ = ws.WriteFrame(nc, ws.NewPingFrame([]byte("are you there?")))
	case "please close":
		_ = ws.WriteFrame(nc, ws.NewCloseFrame(ws.NewCloseFrameBody(4001, "you asked for it")))
	default:
		return gobwasEcho(nc, f.Header.OpCode, msg, compress)
	}
	return ""
}

// gobwasEcho sends msg in three frames, the last of them empty.
func gobwasEcho(nc net.Conn, op ws.OpCode, msg []byte, compress bool) (word string) {
	rsv := byte(0)
	if compress {
		var err error
		if msg, err = wsflate.DefaultHelper.Compress(msg); err != nil {
			return err.Error()
		}
		rsv = ws.Rsv(true, false, false)
	}
	var wire bytes.Buffer
	half := len(msg) / 2
	for i, part := range [][]byte{msg[:half], msg[half:], nil} {
		f := ws.NewFrame(op, i == 2, part)
		f.Header.Rsv = rsv
		_ = ws.WriteFrame(&wire, f)
		op, rsv = ws.OpContinuation, 0
	}
	_, _ = nc.Write(wire.Bytes())
	return ""
}

// nodeServer runs npm/server.mjs, with npm's ws.
func nodeServer(t *testing.T, compress bool, bits string) (url string, heard chan string) {
	needNode(t)
	cmd := exec.CommandContext(t.Context(), "node", "npm/server.mjs", fmt.Sprint(compress), bits)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() {
		t.Fatal("no URL", lines.Err())
	}
	url, heard = lines.Text(), make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines.Scan() {
			heard <- lines.Text()
		}
	}()
	t.Cleanup(func() { // its context is done
		<-done
		_ = cmd.Wait()
	})
	return url, heard
}

// needNode skips t where npm's ws is not installed.
func needNode(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("npm/node_modules/ws"); err == nil {
		return
	}
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		t.Fatal("npm's ws is not installed: npm ci --prefix bench/websocket/npm")
	}
	t.Skip("npm's ws is not installed; npm ci --prefix bench/websocket/npm does that, as CI does")
}
