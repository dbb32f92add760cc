package main

import (
	"bytes"
	"compress/flate"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gobwas/httphead"
	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsflate"
)

const (
	tinySize = 8
	hugeSize = 1 << 20
	bombSize = 60_000
)

// runFloods floods addr until the input ends.
func runFloods(addr, kind string, n int) error {
	piece, err := floodOf(kind)
	if err != nil {
		return err
	}
	var conns []net.Conn
	for range n {
		c, err := connect(addr, kind)
		if err != nil {
			return err
		}
		conns = append(conns, c)
	}
	fmt.Println("flooding")
	var wg sync.WaitGroup
	for _, c := range conns {
		wg.Go(func() {
			for {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, c := range conns {
		_ = c.Close()
	}
	wg.Wait()
	return nil
}

// floodOf returns what is written again and again: whole messages.
func floodOf(kind string) ([]byte, error) {
	switch kind {
	case "tiny":
		return bytes.Repeat([]byte("12345678"), 64<<10/tinySize), nil
	case "huge":
		return append(binary.BigEndian.AppendUint32(nil, hugeSize), make([]byte, hugeSize)...), nil
	case "empty", "small":
		payload := make([]byte, map[string]int{"empty": 0, "small": 16}[kind])
		frame, err := ws.CompileFrame(ws.MaskFrame(ws.NewBinaryFrame(payload)))
		return bytes.Repeat(frame, 64<<10/len(frame)), err
	case "bombs":
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestCompression)
		if err != nil {
			return nil, err
		}
		_, _ = w.Write(make([]byte, bombSize))
		_ = w.Flush()
		payload := bytes.TrimSuffix(b.Bytes(), []byte("\x00\x00\xff\xff"))
		frame, err := ws.CompileFrame(ws.MaskFrame(ws.Frame{
			Header:  ws.Header{Fin: true, Rsv: ws.Rsv(true, false, false), OpCode: ws.OpBinary, Length: int64(len(payload))},
			Payload: payload,
		}))
		return bytes.Repeat(frame, 64<<10/len(frame)), err
	}
	return nil, fmt.Errorf("no flood of %q", kind)
}

// isWebSocket reports whether a flood is one of WebSocket frames.
func isWebSocket(kind string) bool { return kind == "bombs" || kind == "empty" || kind == "small" }

// connect opens a connection, a WebSocket if that is what floods it.
func connect(addr, kind string) (net.Conn, error) {
	if !isWebSocket(kind) {
		return net.Dial("tcp", addr)
	}
	d := ws.Dialer{Timeout: 10 * time.Second}
	if kind == "bombs" {
		d.Extensions = []httphead.Option{wsflate.Parameters{
			ServerNoContextTakeover: true, ClientNoContextTakeover: true}.Option()}
	}
	c, _, hs, err := d.Dial(context.Background(), "ws://"+addr+"/")
	if err == nil && len(hs.Extensions) != len(d.Extensions) {
		err = fmt.Errorf("the server does not inflate")
	}
	return c, err
}
