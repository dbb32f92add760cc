package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// Shards: answers come in the order of the commands, and commands on keys of several slots are
// refused.
func TestShards(t *testing.T) {
	c := dial(t, start(t, "-shards", "4"))
	var wire []byte
	for i := range 5000 {
		wire = resp.AppendCommand(wire, "SET", fmt.Sprint("k", i), fmt.Sprint(i))
		wire = resp.AppendCommand(wire, "GET", fmt.Sprint("k", i))
	}
	go c.write(wire)
	for i := range 5000 {
		if ok, got := text(c.read()), text(c.read()); ok != "OK" || got != fmt.Sprint(i) {
			t.Fatalf("%d: %s, %s", i, ok, got)
		}
	}
	c.want("DBSIZE", "5000")
	c.want("MSET a 1 b 2", "(error) "+errCrossSlot)
	c.want("MSET {t}a 1 {t}b 2", "OK")
	c.want("MGET {t}a {t}b", "[1 2]")
	c.want("RENAME {t}a x", "(error) "+errCrossSlot)
	c.want("MULTI", "OK")
	c.want("INCR {t}a", "QUEUED")
	c.want("INCR u", "(error) "+errCrossSlot)
	c.want("EXEC", "(error) EXECABORT Transaction discarded because of previous errors.")
	for _, tag := range []string{"{a}", "{b}", "{c}", "{d}"} { // on all shards, for sure
		c.want("WATCH "+tag+"w", "OK")
		c.want("MULTI", "OK")
		c.want("INCR "+tag+"n", "QUEUED")
		c.want("RPUSH "+tag+"l x", "QUEUED")
		c.want("EXEC", "[1 1]")
		c.send("BLPOP " + tag + "l " + tag + "m 0")
		c.send("PING")
		if got := text(c.read()); got != "["+tag+"l x]" {
			t.Error(got)
		}
		if got := text(c.read()); got != "PONG" {
			t.Error(got)
		}
	}
	other := dial(t, c.conn.RemoteAddr().String())
	for _, tag := range []string{"{a}", "{b}", "{c}", "{d}"} {
		c.send("BRPOP " + tag + "wait 20")
		waitFor(t, func() bool { return strings.Contains(other.do("INFO clients"), "blocked_clients:1") })
		other.want("RPUSH "+tag+"wait v", "1")
		if got := text(c.read()); got != "["+tag+"wait v]" {
			t.Error(got)
		}
	}
	c.want("FLUSHALL", "OK")
	c.want("DBSIZE", "0")
	c.want("RANDOMKEY", "(nil)")
}

// The commands of one client that are sent behind one that waits are run after it.
func TestPipelineBehindBlocking(t *testing.T) {
	addr := start(t)
	c, other := dial(t, addr), dial(t, addr)
	c.write([]byte("BLPOP q 0\r\nSET x 1\r\nBLPOP r 0.01\r\nGET x\r\n"))
	waitFor(t, func() bool { return strings.Contains(other.do("INFO clients"), "blocked_clients:1") })
	other.want("EXISTS x", "0")
	other.want("LPUSH q v", "1")
	for i, want := range []string{"[q v]", "OK", "(nil)", "1"} {
		if got := text(c.read()); got != want {
			t.Errorf("answer %d: %s, want %s", i, got, want)
		}
	}
}

func TestBadInput(t *testing.T) {
	addr := start(t)
	healthy := dial(t, addr)
	for in, want := range map[string]string{
		"*-5\r\n*0\r\n\r\nPING\r\n":        "PONG",
		"*3000000000\r\n":                  "(error) ERR Protocol error: invalid multibulk length",
		"*1\r\n$536870913\r\n":             "(error) ERR Protocol error: invalid bulk length",
		"*1\r\n$-1\r\n":                    "(error) ERR Protocol error: invalid bulk length",
		"*2\r\n$3\r\nGET\r\nk\r\n":         "(error) ERR Protocol error: expected '$', got 'k'",
		"set \"x\r\n":                      "(error) ERR Protocol error: unbalanced quotes in request",
		"GET / HTTP/1.1\r\n":               "(error) ERR wrong number of arguments for 'get' command",
		"nosuch a b\r\n":                   "(error) ERR unknown command 'nosuch', with args beginning with: 'a' 'b' ",
		"set k v ex 0\r\n":                 "(error) ERR invalid expire time in 'set' command",
		"incrby k 9223372036854775808\r\n": "(error) ERR value is not an integer or out of range",
		strings.Repeat("x", 70_000):        "(error) ERR Protocol error: too big inline request",
	} {
		c := dial(t, addr)
		c.write([]byte(in))
		if got := text(c.read()); got != want {
			t.Errorf("%.30q: got %s, want %s", in, got, want)
		}
		healthy.want("PING", "PONG")
	}
}

// A page that has a browser send commands in the body of a POST is closed before any is run.
func TestHTTPPost(t *testing.T) {
	addr := start(t)
	c, healthy := dial(t, addr), dial(t, addr)
	c.write([]byte("POST / HTTP/1.1\r\nHost: x\r\n\r\nSET pwned yes\r\n"))
	if got, err := io.ReadAll(c.conn); len(got) != 0 {
		t.Errorf("it is answered %q, %v", got, err)
	}
	healthy.want("EXISTS pwned", "0")
}

// A client that sends 100,000 commands before it reads gets all its answers, and costs no more
// memory than what may wait for it.
func TestPipelineThatIsNotRead(t *testing.T) {
	addr := start(t)
	c, healthy := dial(t, addr), dial(t, addr)
	healthy.sendArgs("SET", "big", strings.Repeat("x", 10_000))
	healthy.read()
	const n = 100_000
	go c.write([]byte(strings.Repeat("GET big\r\n", n))) // the answers are a gigabyte
	before := heap()
	for range 200 {
		healthy.want("PING", "PONG")
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if testing.Short() {
		return
	}
	got, err := io.CopyN(io.Discard, c.conn, n/10*10_010) // a tenth of it
	if err != nil {
		t.Errorf("%d bytes, %v", got, err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Ten of 10,000 subscribers do not read: they are closed, and nobody else is held up.
func TestSlowSubscribers(t *testing.T) {
	crowd, rounds := 100, 20
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		crowd, rounds = 9990, 5
	}
	p := startProcess(t, "-client-output-limit", "1mb")
	defer p.kill()
	publisher := dial(t, p.addr)
	var good []*peer
	for i := range crowd + 10 {
		conn, err := net.Dial("tcp", p.addr)
		if errors.Is(err, syscall.EMFILE) {
			t.Skipf("this system allows no more than %d open files: raise the limit, as by ulimit -n 20000", i)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c := newPeer(t, conn, 512)
		c.send("SUBSCRIBE news")
		if i < 10 { // who will not read
			c.send("SUBSCRIBE bulk")
			continue
		}
		good = append(good, c)
		if got := text(c.read()); got != "[subscribe news 1]" { // one after the other: a backlog of thousands takes its time
			t.Fatal(got)
		}
	}
	waitFor(t, func() bool {
		return publisher.do("PUBSUB NUMSUB news bulk") == fmt.Sprintf("[news %d bulk 10]", crowd+10)
	})
	message := strings.Repeat("m", 512<<10)
	for publisher.do("PUBLISH bulk "+message) != "0" {
		publisher.want("ECHO still", "still")
	}
	worst := time.Duration(0)
	for range rounds {
		began := time.Now()
		publisher.want("PUBLISH news hello", fmt.Sprint(crowd))
		worst = max(worst, time.Since(began))
		for _, c := range good {
			if got := text(c.read()); got != "[message news hello]" {
				t.Fatal(got)
			}
		}
	}
	t.Logf("the slowest PUBLISH to %d took %s", crowd, worst)
}

func TestMaxMemory(t *testing.T) {
	addr := start(t, "-maxmemory", "1kb") // what the program itself takes is more
	c := dial(t, addr)
	waitFor(t, func() bool { return strings.HasPrefix(c.do("SET a 1"), "(error) OOM command not allowed") })
	c.want("GET a", c.do("GET a"))
	c.want("DEL nothing", "0")
	c.want("CONFIG SET maxmemory 0", "OK")
	c.want("SET a 1", "OK")
}

func TestAuth(t *testing.T) {
	c := dial(t, start(t, "-requirepass", "secret"))
	c.want("GET a", "(error) NOAUTH Authentication required.")
	c.want("CLIENT ID", "(error) NOAUTH Authentication required.")
	c.want("AUTH wrong", "(error) "+errWrongPass)
	c.want("AUTH other secret", "(error) "+errWrongPass)
	c.want("AUTH default secret", "OK")
	c.want("GET a", "(nil)")
	c.want("RESET", "RESET")
	c.want("GET a", "(error) NOAUTH Authentication required.")
}

// Keys go by the wheel, also those that nobody asks for.
func TestExpiryByTheWheel(t *testing.T) {
	addr := start(t, "-notify-keyspace-events", "Ex")
	listener, c := dial(t, addr), dial(t, addr)
	listener.want("SUBSCRIBE __keyevent@0__:expired", "[subscribe __keyevent@0__:expired 1]")
	const n = 1000
	for i := range n {
		c.send(fmt.Sprintf("SET k%d v PX %d", i, 50+i%200))
	}
	for range n {
		if got := text(c.read()); got != "OK" {
			t.Fatal(got)
		}
	}
	for range n {
		listener.read()
	}
	c.want("DBSIZE", "0")
	if strings.Contains(c.do("INFO keyspace"), "db0") {
		t.Error("there are keys")
	}
}

// Commands from a file, through nc -N: the client ends its output, and reads all answers, those of
// other shards, too.
func TestPipelineThatEnds(t *testing.T) {
	addr := start(t, "-shards", "2")
	const pairs = 200
	for range 20 {
		c := dial(t, addr)
		for i := range pairs {
			c.send(fmt.Sprintf("set key%d %d", i, i))
			c.send(fmt.Sprintf("get key%d", i))
		}
		if err := c.conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for i := range 2 * pairs {
			if v, err := c.tryRead(); err != nil {
				t.Fatalf("answer %d: %v %v", i, v, err)
			}
		}
		if _, err := c.tryRead(); !errors.Is(err, io.EOF) {
			t.Fatalf("behind the answers: %v, want the end", err)
		}
	}
}
