package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// Each file of testdata/scripts is what several clients send, a line each, and when they wait for
// what they are answered:
//
//	a SET k v        client a sends a command, inline, and reads its answer
//	a! BLPOP q 0     it only sends
//	a< 2             it reads that many replies
//	a| *1\r\n...     it sends these bytes, with Go's escapes
//	a$               it reads until the server closes
//	blocked 1        wait until so many clients are blocked
//
// A client connects when its name comes first.
const scripts = "testdata/scripts/*.txt"

var stepForm = regexp.MustCompile(`^([a-z])([!<|$]?)(?: (.*))?$`)

// play runs a script on a server, and returns its lines with the answers behind them.
func play(t *testing.T, script, addr string) (transcript []string) {
	t.Helper()
	control := dial(t, addr)
	control.want("FLUSHALL", "OK")
	defer func() { _ = control.conn.Close() }()
	clients := make(map[string]*peer)
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if n, ok := strings.CutPrefix(line, "blocked "); ok {
			waitFor(t, func() bool { return strings.Contains(control.do("INFO clients"), "blocked_clients:"+n+"\r") })
			continue
		}
		part := stepForm.FindStringSubmatch(line)
		if part == nil {
			t.Fatalf("%q is no line of a script", line)
		}
		c := clients[part[1]]
		if c == nil {
			c = dial(t, addr)
			clients[part[1]] = c
			defer func() { _ = c.conn.Close() }()
		}
		transcript = append(transcript, line+" -> "+c.step(part[2], part[3]))
	}
	return transcript
}

// step does one line, and returns what is answered.
func (c *peer) step(kind, rest string) string {
	c.t.Helper()
	replies := 0
	switch kind {
	case "":
		c.write([]byte(rest + "\r\n"))
		replies = 1
	case "!":
		c.write([]byte(rest + "\r\n"))
	case "|":
		text, err := strconv.Unquote(`"` + strings.ReplaceAll(rest, `"`, `\"`) + `"`)
		if err != nil {
			c.t.Fatal(rest, err)
		}
		c.write([]byte(text))
	case "<":
		if _, err := fmt.Sscan(rest, &replies); err != nil {
			c.t.Fatal(err)
		}
	case "$":
		v, err := c.tryRead()
		if err == io.EOF {
			return "closed"
		}
		return fmt.Sprint(text(v), err)
	}
	var out []string
	for range replies {
		raw, err := c.readRaw()
		if err != nil {
			return fmt.Sprint(out, err)
		}
		out = append(out, shown(rest, raw))
	}
	return strings.Join(out, " ")
}

// TestScripts plays what is odd but allowed, and some that is not, to redis-server and to this
// program: the answers must be the same, byte for byte.
func TestScripts(t *testing.T) {
	redis := redisServer(t, "--databases", "1", "--notify-keyspace-events", "KEA")
	kv := start(t, "-notify-keyspace-events", "KEA")
	files, err := filepath.Glob(scripts)
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			script, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, got := play(t, string(script), redis), play(t, string(script), kv)
			for i := range want {
				if want[i] != got[i] {
					t.Errorf("redis-server: %s\nthis: %s", want[i], got[i])
				}
			}
		})
	}
}

var anyID = regexp.MustCompile(`(\r\nid\r\n):\d+`)

// shown shows a reply as it came, but for what has no order, and for numbers of clients.
func shown(line string, raw []byte) string {
	if v, err := resp.Parse(raw); err == nil && strings.HasPrefix(line, "KEYS ") {
		return normal([]string{"KEYS"}, v)
	}
	return strconv.Quote(anyID.ReplaceAllString(string(raw), "$1:N"))
}
