package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// TestKill kills the program under load, again and again. With each policy, all that was confirmed
// is there afterwards: only a crash of the machine could lose what was handed to the system. Each
// client counts in a key of its own, and knows how far it got.
func TestKill(t *testing.T) {
	rounds := 2
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		rounds = 20
	}
	for _, tt := range [][2]string{{"always", "1"}, {"always", "3"}, {"everysec", "1"}, {"everysec", "3"}, {"no", "1"}} {
		policy, shards := tt[0], tt[1]
		t.Run(policy+", shards="+shards, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
			dir := t.TempDir()
			confirmed := make([]int64, 8)
			for round := range rounds {
				p := startProcess(t, "-dir", dir, "-appendfsync", policy, "-shards", shards)
				checkConfirmed(t, p.addr, round, confirmed)
				var wg sync.WaitGroup
				for i := range confirmed {
					wg.Go(func() { confirmed[i] = count(t, p.addr, i, confirmed[i]) })
				}
				time.Sleep(time.Duration(50+random.IntN(150)) * time.Millisecond) // the load goes on until the kill
				if round%3 == 2 {
					dial(t, p.addr).do("BGREWRITEAOF")
					time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
				}
				p.kill()
				wg.Wait()
				if t.Failed() {
					return
				}
			}
			p := startProcess(t, "-dir", dir, "-shards", shards)
			checkConfirmed(t, p.addr, rounds, confirmed)
			t.Logf("confirmed in %d rounds: %d", rounds, confirmed)
			p.kill()
		})
	}
}

// count increments until the connection breaks, in transactions that push to a list, too. It
// returns the last number that was confirmed.
func count(t *testing.T, addr string, i int, last int64) int64 {
	conn, err := net.Dial("tcp", addr)
	if err != nil { // it was killed already
		return last
	}
	defer conn.Close()
	c := newPeer(t, conn, 4<<10)
	for {
		var wire []byte
		for _, line := range []string{"MULTI", "INCR {%d}n", "RPUSH {%d}l x", "EXEC"} {
			if strings.Contains(line, "%d") {
				line = fmt.Sprintf(line, i)
			}
			wire = append(wire, line+"\r\n"...)
		}
		if _, err := c.conn.Write(wire); err != nil {
			return last
		}
		for k := range 4 {
			v, err := c.tryRead()
			if err != nil {
				return last
			}
			if k == 3 {
				if len(v.Elems) != 2 || v.Elems[0].Int != v.Elems[1].Int {
					t.Errorf("a transaction answers %s: what belongs together was torn", text(v))
					return last
				}
				last = v.Elems[0].Int
			}
		}
	}
}

// checkConfirmed wants what was confirmed to be there, and at most the one transaction more that
// was under way at the kill. What is there counts from then on: it was kept, so it must not go.
func checkConfirmed(t *testing.T, addr string, round int, confirmed []int64) {
	t.Helper()
	c := dial(t, addr)
	for i, want := range confirmed {
		got := c.do(fmt.Sprintf("GET {%d}n", i))
		var n int64
		_, _ = fmt.Sscan(got, &n)
		if n < want || n > want+1 {
			t.Errorf("round %d: client %d had %d confirmed, and finds %s", round, i, want, got)
		}
		if length := c.do(fmt.Sprintf("LLEN {%d}l", i)); want > 0 && length != got {
			t.Errorf("round %d: a transaction was torn: %s numbers, %s pushes", round, got, length)
		}
		confirmed[i] = n
	}
}

func TestPersistence(t *testing.T) {
	dir := t.TempDir()
	lines := []string{
		"SET a 1", "INCRBYFLOAT a 0.5", "RPUSH l a b c", "LMOVE l m LEFT RIGHT", "HSET h f 1 g 2", "HINCRBYFLOAT h f 0.5", "SADD s a b c",
		"SPOP s", "ZADD z 1 a 2.5 b inf c", "ZPOPMIN z", "SETEX t 1000 v", "SET gone v PX 30", "EXPIRE h 5000", "COPY z y", "RENAME y x", "GETEX a EX 100", "SETRANGE r 5 x",
	}
	addr, stop := startStoppable(t, "-dir", dir)
	c := dial(t, addr)
	for _, line := range lines {
		if got := c.do(line); strings.HasPrefix(got, "(error)") {
			t.Fatal(line, got)
		}
	}
	waitFor(t, func() bool { return c.do("EXISTS gone") == "0" })
	want := state(c)
	_ = c.conn.Close()
	stop()
	for _, shards := range []string{"1", "4", "2", "1"} { // other numbers of shards take over the keys
		addr, stop = startStoppable(t, "-dir", dir, "-shards", shards)
		c = dial(t, addr)
		if got := state(c); got != want {
			t.Errorf("%s shards:\n%s\nwant\n%s", shards, got, want)
		}
		if c.do("BGREWRITEAOF"); shards == "4" {
			c.want("DBSIZE", "9")
		}
		_ = c.conn.Close()
		stop()
	}
}

// state shows all keys.
func state(c *peer) string {
	var b strings.Builder
	for _, read := range []string{"GET a", "LRANGE l 0 -1", "LRANGE m 0 -1", "HGET h f", "HGET h g", "SCARD s", "ZRANGE z 0 -1 WITHSCORES",
		"ZRANGE x 0 -1 WITHSCORES", "GET t", "EXPIRETIME t", "EXPIRETIME h", "EXPIRETIME a", "GET r", "DBSIZE"} {
		fmt.Fprintf(&b, "%s: %s\n", read, c.do(read))
	}
	return b.String()
}

// waitFor waits until something is true.
func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come true")
		}
	}
}

// files returns the append-only files.
func files(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "shards-1", "*.aof"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}

// filled returns a directory with the data of three keys, in one file.
func filled(t *testing.T) string {
	dir := t.TempDir()
	addr, stop := startStoppable(t, "-dir", dir)
	c := dial(t, addr)
	for _, line := range []string{"SET a 1", "SET b 2", "SET c 3"} {
		c.want(line, "OK")
	}
	_ = c.conn.Close()
	stop()
	return dir
}

func TestTornTail(t *testing.T) {
	dir := filled(t)
	path := files(t, dir)[0]
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{1, 5, 10} {
		if err := os.WriteFile(path, data[:len(data)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		p := startProcess(t, "-dir", dir)
		c := dial(t, p.addr)
		c.want("MGET a b c", "[1 2 (nil)]")
		p.kill()
		if !strings.Contains(p.log.String(), "ends in the middle of a command") {
			t.Errorf("no warning: %s", p.log)
		}
		if got, _ := os.ReadFile(path); len(got) != len(data)*2/3 {
			t.Errorf("it has %d bytes of %d", len(got), len(data))
		}
	}
	// A transaction that is not whole is none.
	torn := string(data) + "*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n9\r\n"
	if err := os.WriteFile(path, []byte(torn), 0o600); err != nil {
		t.Fatal(err)
	}
	dial(t, start(t, "-dir", dir)).want("GET a", "1")
}

func TestBadFiles(t *testing.T) {
	for name, tt := range map[string]struct {
		spoil func(path string) error
		want  string
	}{
		"garbled":    {func(p string) error { return patch(p, 5, "garbage") }, "bad at offset 0"},
		"a reader":   {func(p string) error { return appendTo(p, "*2\r\n$3\r\nGET\r\n$1\r\na\r\n") }, "not one of this server's"},
		"zeros":      {func(p string) error { return appendTo(p, "\x00\x00\x00\x00") }, "does not begin with '*'"},
		"unreadable": {func(p string) error { _ = os.Remove(p); return os.Mkdir(p, 0o700) }, "is a directory"},
		"missing":    {os.Remove, "no such file"},
		"manifest":   {func(p string) error { return appendTo(filepath.Join(filepath.Dir(p), "shard-0.manifest"), "what 3\n") }, "base N"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filled(t)
			if err := tt.spoil(files(t, dir)[0]); err != nil {
				t.Fatal(err)
			}
			var out, errOut strings.Builder
			if code := run(t.Context(), []string{"-dir", dir, "-addr", "tcp://127.0.0.1:0"}, &out, &errOut); code != 1 {
				t.Errorf("code %d", code)
			}
			if !strings.Contains(errOut.String(), tt.want) {
				t.Errorf("%q, want %q in it", errOut.String(), tt.want)
			}
		})
	}
}

func patch(path string, at int, with string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	copy(data[at:], with)
	return os.WriteFile(path, data, 0o600)
}

func appendTo(path, what string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(what)
	return err
}

func TestDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	start(t, "-dir", dir)
	var out, errOut strings.Builder
	if code := run(t.Context(), []string{"-dir", dir, "-addr", "tcp://127.0.0.1:0"}, &out, &errOut); code != 1 ||
		!strings.Contains(errOut.String(), "is in use by another server") {
		t.Error(code, errOut.String())
	}
}

// A rewrite makes the files small, and what is written meanwhile is in them.
func TestRewrite(t *testing.T) {
	dir := t.TempDir()
	addr, stop := startStoppable(t, "-dir", dir)
	c := dial(t, addr)
	for range 20 {
		var wire []byte
		for range 1000 {
			wire = append(wire, "INCR n\r\n"...)
		}
		c.write(wire)
		c.do("BGREWRITEAOF")
		for range 1000 {
			c.read()
		}
	}
	waitFor(t, func() bool { return strings.Contains(c.do("INFO persistence"), "aof_rewrite_in_progress:0") })
	c.do("BGREWRITEAOF")
	waitFor(t, func() bool { return strings.Contains(c.do("INFO persistence"), "aof_rewrite_in_progress:0") })
	_ = c.conn.Close()
	stop()
	size := int64(0)
	for _, path := range files(t, dir) {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	if size > 1000 {
		t.Errorf("the files of one number have %d bytes: %q", size, files(t, dir))
	}
	dial(t, start(t, "-dir", dir)).want("GET n", "20000")
}
