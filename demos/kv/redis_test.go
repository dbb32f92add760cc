package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// startRedis starts redis-server with the limit of this server, and returns its socket. It skips
// the test if there is none, or not the one that this server replies as.
func startRedis(t *testing.T) string {
	t.Helper()
	if os.Getenv("LOOPWHEEL_SLOW") == "" {
		t.Skip("compares with redis-server: set LOOPWHEEL_SLOW=1")
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("redis-server is not installed: apt-get install redis-server")
	}
	about, err := exec.Command(path, "--version").Output()
	if err != nil || !strings.Contains(string(about), " v=7.0.") {
		t.Skipf("replies are those of redis-server 7.0; here is %q, %v", about, err)
	}
	socket := testkit.SocketPath(t)
	cmd := exec.Command(path, "--port", "0", "--unixsocket", socket, "--save", "", "--databases", "1",
		"--proto-max-bulk-len", strconv.Itoa(maxValue))
	cmd.Dir = filepath.Dir(socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for log := bufio.NewScanner(out); log.Scan(); {
		if strings.Contains(log.Text(), "ready to accept connections at "+socket) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return socket
		}
	}
	t.Fatal("redis-server has ended")
	return ""
}

// TestSameAsRedis sends a random script to redis-server and to this server, in pipelines, and wants
// the same replies, byte for byte but for what differs says. LOOPWHEEL_SEED=random tries others.
func TestSameAsRedis(t *testing.T) {
	redis := dial(t, startRedis(t))
	for _, loops := range []int{1, 3} {
		t.Run(fmt.Sprintf("loops=%d", loops), func(t *testing.T) {
			both := pair{redis, dial(t, start(t, loops))}
			g := newGenerator(testkit.Seed(t, uint64(loops)))
			both.same(t, []string{"FLUSHALL"})
			const commands = 20_000
			for sent := 0; sent < commands && !t.Failed(); {
				var batch [][]string
				for range 1 + g.IntN(200) {
					batch = append(batch, g.command())
				}
				sent += len(batch)
				both.same(t, batch...)
				if g.oneIn(4) {
					both.sameKeys(t, g.pattern(), g.pick("1", "3", "10", "1000"))
				}
			}
		})
	}
}

// A pair is a connection to redis-server and one to this server.
type pair struct{ redis, kv *client }

// same sends commands to both, as one pipeline each, and wants the same replies.
func (p pair) same(t *testing.T, commands ...[]string) {
	t.Helper()
	var all strings.Builder
	for _, args := range commands {
		all.WriteString(wire(args...))
	}
	began := time.Now()
	p.redis.send(all.String())
	p.kv.send(all.String())
	for i, args := range commands {
		want, got := p.redis.read(t), p.kv.read(t)
		if want != got && !differs(args, want, got, time.Since(began)) {
			t.Errorf("%s: redis-server replies %s, this %s; before it: %s", short(args...), short(want), short(got),
				short(slices.Concat(commands[max(0, i-3):i]...)...))
		}
	}
}

// differs reports whether two replies may differ. The time that is left of a key is counted from
// the moment of the command, and set at the moment of another one, which are not the same on two
// servers.
func differs(args []string, redis, kv string, apart time.Duration) bool {
	x, err1 := strconv.ParseInt(strings.Trim(redis, ":\r\n"), 10, 64)
	y, err2 := strconv.ParseInt(strings.Trim(kv, ":\r\n"), 10, 64)
	if err1 != nil || err2 != nil || x < 0 || y < 0 {
		return false
	}
	unit, timed := map[string]time.Duration{"TTL": time.Second, "EXPIRETIME": time.Second, "PTTL": time.Millisecond}[strings.ToUpper(args[0])]
	return timed && max(x-y, y-x) <= int64((time.Second+2*apart)/unit)
}

var averageTTL = regexp.MustCompile(`avg_ttl=\d+`)

// sameKeys walks over all keys that match, on both servers. Their order and the cursors are each
// server's own business, and so is how many keys a step returns. What both report of their number
// is the same after a walk: redis-server counts keys that have expired until something finds them.
func (p pair) sameKeys(t *testing.T, pattern, count string) {
	t.Helper()
	want, got := p.redis.scan(t, "*", "1000"), p.kv.scan(t, "*", count)
	if !slices.Equal(want, got) {
		t.Errorf("SCAN: redis-server has %s, this %s", short(want...), short(got...))
	}
	want, got = p.redis.scan(t, pattern, count), p.kv.scan(t, pattern, count)
	if !slices.Equal(want, got) {
		t.Errorf("SCAN MATCH %q: redis-server has %s, this %s", pattern, short(want...), short(got...))
	}
	p.same(t, []string{"DBSIZE"})
	info := wire("INFO", "KeySpace")
	p.redis.send(info)
	p.kv.send(info)
	x, y := averageTTL.ReplaceAllString(p.redis.read(t), ""), averageTTL.ReplaceAllString(p.kv.read(t), "")
	_, x, _ = strings.Cut(x, "\n") // how long it is depends on that number
	_, y, _ = strings.Cut(y, "\n")
	if x != y {
		t.Errorf("INFO: redis-server replies %q, this %q", x, y)
	}
}

// scan returns what all steps of SCAN return, sorted and without repetitions.
func (c *client) scan(t *testing.T, pattern, count string) (keys []string) {
	t.Helper()
	for cursor := "0"; ; {
		c.send(wire("SCAN", cursor, "match", pattern, "COUNT", count))
		reply := c.read(t)
		parts := strings.SplitN(reply, "\r\n", 4)
		if len(parts) < 4 || parts[0] != "*2" {
			t.Fatalf("SCAN replies %q", reply)
		}
		step, err := elements(parts[3])
		if err != nil {
			t.Fatalf("SCAN replies %q: %v", reply, err)
		}
		keys = append(keys, step...)
		if cursor = parts[2]; cursor == "0" {
			slices.Sort(keys)
			return slices.Compact(keys)
		}
	}
}

// short shows the beginnings of texts.
func short(texts ...string) string {
	var out []string
	for _, s := range texts {
		if len(s) > 100 {
			s = s[:100] + "..." + strconv.Itoa(len(s))
		}
		out = append(out, strconv.Quote(s))
	}
	return strings.Join(out, " ")
}

// conversations are what a client sends before it ends its output. None has a zero byte outside a
// bulk string: there redis-server looks no further for the end of a line.
var conversations = []string{
	"", "\r\n", "\n", "\r\n\r\nPING\r\n", "PING\n", "  PING  \t\r\n", "ping\r\nPiNg x\r\n", "PING a b\r\n",
	"*0\r\nPING\r\n", "*-1\r\nPING\r\n", "*-9223372036854775808\r\nPING\r\n", "*\r\n", "*x\r\nPING\r\n", "*01\r\n", "*1 \r\n", "*9223372036854775807\r\n",
	"*9223372036854775808\r\n", "*2147483648\r\n", "*1\r\n$4\r\nPING\r\n*1\r\n:4\r\n", "*1\r\n\r\n", "*1\r\n\xff", "*1\r\nPING\r\n",
	"*1\r\n$-1\r\n", "*1\r\n$x\r\n", "*1\r\n$16777217\r\n", "*1\r\n$9223372036854775807\r\n", "*1\r\n$99999999999999999999\r\n", "*1\r\n$04\r\nPING\r\n",
	"*1\r\n$0\r\n\r\n", "*1\r\n$4\r\nPINGxxPING\r\n", "*2\r\n$4\r\nPING\r\n$3\r\nabc", "*1\r\n$4", "*1\r\n$4\r", "*1\r\n$4\r\nPING\r",
	"SET a 'b c'\r\nGET a\r\n", "SET a \"\\x41\\n\\\"\\\\\\q\\xzz\\x4\"\r\nGET a\r\n", "SET a 'it\\'s \\n'\r\nGET a\r\n", "SET \"\" ''\r\nGET \"\"\r\n",
	"SET a b\"c d\"\r\nGET a\r\n", "PING 'a\r\n", "PING \"a\r\n", "PING 'a'b\r\n", "PING \"a\"b\r\n", "PING \"a\\\"\r\n", "PING 'a\\'\r\n",
	"PING\r\nQUIT\r\nPING\r\n", "QUIT now please\r\nPING\r\n", "POST / HTTP/1.1\r\nHost: x\r\n\r\nSET pwned yes\r\n", "GET pwned\r\n", "Host: x\r\nPING\r\n",
	"*1\r\n$4\r\npost\r\n", "HELLO 2\r\nHELLO\r\nHELLO x\r\nHELLO 4\r\nHELLO 2 x\r\nHELLO 2 AUTH\r\nHELLO 2 SETNAME\r\n",
	"SELECT 0\r\nSELECT 1\r\nSELECT -1\r\nSELECT x\r\nSELECT 2147483648\r\nSELECT 9223372036854775808\r\nSELECT\r\n",
	strings.Repeat("PING\r\n", 1000), "PING " + strings.Repeat("x", 60_000) + "\r\n", strings.Repeat("x", 70_000), "*1\r\n$" + strings.Repeat("1", 70_000),
	"*" + strings.Repeat("1", 70_000), "NOSUCH " + strings.Repeat("x ", 200) + "\r\n", strings.Repeat("n", 200) + " a\r\n", "*2\r\n$3\r\nNO\n\r\n$3\r\na\r\n\r\n",
}

var clientID = regexp.MustCompile(`(\r\nid\r\n):\d+`)

// garble returns some requests, of which a few bytes are wrong.
func (g *generator) garble() string {
	var all string
	for range 1 + g.IntN(4) {
		switch g.IntN(4) {
		case 0:
			all += "SET " + g.pick("a", "'a'", "b") + " \"" + g.pick("x y", "\\x41", "1") + "\"\r\n"
		case 1:
			all += wire("INCR", g.pick("a", "b"))
		case 2:
			all += wire("MSET", "a", "1", "b", g.pick("2", "", "\r\n"))
		case 3:
			all += wire("GET", g.pick("a", "b"))
		}
	}
	text := []byte(all)
	for range g.IntN(4) {
		at := g.IntN(len(text))
		with := []byte(g.pick("*", "$", "\r", "\n", "\r\n", "0", "1", "3", "9", "-", " ", "'", "\"", "\\", "x", "\xff", ""))
		text = slices.Replace(text, at, at+g.IntN(min(3, len(text)-at)), with...)
	}
	return string(text)
}

// TestProtocolAsRedis wants of both servers all that they send until they close.
func TestProtocolAsRedis(t *testing.T) {
	redis, kv := startRedis(t), start(t, 3)
	talk := func(addr, text string) string {
		c := dial(t, addr)
		defer func() { _ = c.Close() }()
		go func() {
			_, _ = io.WriteString(c, text)
			_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}()
		all, _ := io.ReadAll(c.in) // a server that has not read all resets the connection behind its reply
		return clientID.ReplaceAllString(string(all), "$1:N")
	}
	g := newGenerator(testkit.Seed(t, 1))
	texts := slices.Clone(conversations)
	for range 2000 {
		texts = append(texts, g.garble())
	}
	for _, text := range texts {
		if want, got := talk(redis, text), talk(kv, text); want != got {
			t.Errorf("%s: redis-server sends %s, this %s", short(text), short(want), short(got))
		}
	}
}
