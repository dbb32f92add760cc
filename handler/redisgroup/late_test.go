package redisgroup_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// A holder keeps commands that run scripts with something in them, as a network does that is slow
// in between, until they are released.
type holder struct {
	mu   sync.Mutex
	what string // "": nothing is kept
	kept []*heldConn
}

func (h *holder) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return &heldConn{Conn: c, holder: h}, err
}

func (h *holder) hold(what string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.what = what
}

func (h *holder) held() []*heldConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.kept
}

type heldConn struct {
	net.Conn
	holder *holder
	data   []byte
}

func (c *heldConn) Write(b []byte) (int, error) {
	c.holder.mu.Lock()
	defer c.holder.mu.Unlock()
	what := []byte(c.holder.what)
	if len(what) > 0 && bytes.Contains(b, what) && bytes.Contains(bytes.ToLower(b), []byte("evalsha")) {
		c.data = bytes.Clone(b)
		c.holder.kept = append(c.holder.kept, c)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *heldConn) Close() error {
	c.holder.mu.Lock()
	defer c.holder.mu.Unlock()
	if c.data != nil {
		return nil // the server does not know yet
	}
	return c.Conn.Close()
}

// release has the server get what was held, and returns its answer.
func (c *heldConn) release(t *testing.T) string {
	defer c.Conn.Close()
	_ = c.Conn.SetDeadline(time.Now().Add(testkit.Patience))
	if _, err := c.Conn.Write(c.data); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 4096)
	n, err := c.Conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer[:n])
}

// A batch that was given up and sent again may still be under way: when it arrives it is refused,
// and nothing is said twice.
func TestLateBatchIsRefused(t *testing.T) {
	var h holder
	opt := &redis.Options{Addr: startMini(t)().(*redis.Client).Options().Addr, ReadTimeout: 300 * time.Millisecond, Dialer: h.dial}
	client := redis.NewClient(opt)
	defer client.Close()
	c := startNode(t, client, settled()).dial()
	c.say("history room 0")
	c.until("gap=false")
	c.say("osay room first")
	c.until("first")
	h.hold("second")
	c.say("osay room second")
	testkit.Eventually(t, "it is under way", func() bool { return len(h.held()) > 0 })
	h.hold("")
	c.until("second")
	for _, late := range h.held() {
		if answer := late.release(t); !strings.Contains(answer, "STALE") {
			t.Errorf("it was answered %q", answer)
		}
	}
	c.say("osay room end")
	for _, line := range c.until("end") {
		if strings.Contains(line, "second") {
			t.Errorf("heard twice: %q", line)
		}
	}
}
