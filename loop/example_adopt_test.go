package loop_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/loopwheel/loopwheel/codec"
	"github.com/loopwheel/loopwheel/loop"
)

// net/http answers until a client asks for something else: then the loops have its connection.
func ExampleServer_Adopt() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	srv := &loop.Server{}
	if err := srv.Start(ctx); err != nil {
		fmt.Println(err)
	}
	lines := loop.Listener{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler { return loop.HandlerFunc(shout) }}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		nc, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = buf.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		_ = buf.Flush()
		read, _ := buf.Reader.Peek(buf.Reader.Buffered()) // what the client sent after its request
		if err := srv.Adopt(nc, read, lines); err != nil {
			nc.Close()
		}
	}))
	c, err := net.Dial("tcp", web.Listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\nhello\n")
	r := bufio.NewReader(c)
	res, _ := http.ReadResponse(r, nil)
	line, _ := r.ReadString('\n')
	fmt.Print(res.StatusCode, " ", line)
	c.Close()
	web.Close()
	stop()
	_ = srv.Wait()
	// Output: 101 HELLO
}

// A connection that says so gets a goroutine of its own, with what it has sent after that.
func ExampleConn_Detach() {
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			if string(line) != "raw" {
				return c.Send(line)
			}
			nc, read, err := c.Detach()
			if err != nil {
				return err
			}
			go func() {
				defer nc.Close()
				fmt.Fprintf(nc, "%d bytes came before, from %s\n", len(read), nc.RemoteAddr().Network())
			}()
			return nil
		})
	}})
	defer stop()
	fmt.Fprint(client, "hello\nraw\nabc")
	r := bufio.NewReader(client)
	for range 2 {
		line, _ := r.ReadString('\n')
		fmt.Print(line)
	}
	// Output:
	// hello
	// 3 bytes came before, from tcp
}

// A connection that says so is read by a goroutine, which may wait for what it needs. TLS would be no
// different.
func ExampleConn_NetConn() {
	client, stop := serve(&loop.Server{Codec: codec.Lines{}, Accept: func(*loop.Conn) loop.Handler {
		return loop.HandlerFunc(func(c *loop.Conn, line []byte) error {
			nc, err := c.NetConn()
			if err != nil {
				return err
			}
			go func() {
				defer nc.Close()
				body, err := io.ReadAll(nc)
				fmt.Fprintf(nc, "%d bytes, %v\n", len(body), err)
			}()
			return nil
		})
	}})
	defer stop()
	fmt.Fprint(client, "upload\nsome bytes")
	_ = client.(*net.TCPConn).CloseWrite()
	line, _ := bufio.NewReader(client).ReadString('\n')
	fmt.Print(line)
	// Output: 10 bytes, <nil>
}
