package main

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A client whose commands were kept behind one that waited, and who does not read: they are not all
// run at once, as their answers would be 200 MB.
func TestBacklogThatIsNotRead(t *testing.T) {
	addr := start(t)
	c, other := dial(t, addr), dial(t, addr)
	other.sendArgs("SET", "big", strings.Repeat("x", 10_000))
	other.read()
	const n = 20_000
	c.send("BLPOP q 0")
	waitFor(t, func() bool { return strings.Contains(other.do("INFO clients"), "blocked_clients:1") })
	c.write([]byte(strings.Repeat("GET big\r\n", n)))
	before := heap()
	other.want("LPUSH q v", "1")
	for range 200 {
		other.want("PING", "PONG")
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	if got := text(c.read()); got != "[q v]" {
		t.Error(got)
	}
	for i := range n {
		if got := c.read(); len(got.Str) != 10_000 {
			t.Fatalf("answer %d is %s", i, text(got))
		}
	}
	c.want("PING", "PONG")
}

// Who only says that an argument of 512 MiB will come costs nothing, and one byte more is refused.
func TestHugeArguments(t *testing.T) {
	addr := start(t)
	before := heap()
	for range 20 {
		c := dial(t, addr)
		c.write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870912\r\n" + strings.Repeat("x", 1000)))
	}
	healthy := dial(t, addr)
	for range 50 {
		healthy.want("PING", "PONG")
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("20 clients who have said that much will come cost %d MiB", grown>>20)
	}
	c := dial(t, addr)
	c.write([]byte("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$536870913\r\n"))
	if got := text(c.read()); got != "(error) ERR Protocol error: invalid bulk length" {
		t.Error(got)
	}
	healthy.want("SETRANGE k 536870912 x", "(error) ERR string exceeds maximum allowed size (proto-max-bulk-len)")
}

// FLUSHALL of many keys that expire: they are gone at once, nothing of them is told later, and keys
// of the same names live on.
func TestFlushOfExpiringKeys(t *testing.T) {
	addr := start(t, "-notify-keyspace-events", "Ex")
	c, listener := dial(t, addr), dial(t, addr)
	listener.want("SUBSCRIBE __keyevent@0__:expired", "[subscribe __keyevent@0__:expired 1]")
	const n = 20_000
	var wire []byte
	for i := range n {
		wire = resp.AppendCommand(wire, "SET", fmt.Sprint("k", i), "v", "PX", "60")
	}
	wire = append(wire, "FLUSHALL\r\nDBSIZE\r\nSET k0 new\r\nSET last v PX 150\r\n"...)
	go c.write(wire)
	for i := range n + 4 {
		if got, want := text(c.read()), "OK"; got != want && !(i == n+1 && got == "0") {
			t.Fatalf("answer %d: %s", i, got)
		}
	}
	for { // some of the first may have gone before the flush
		if got := text(listener.read()); got == "[message __keyevent@0__:expired last]" {
			break
		}
	}
	c.want("DBSIZE", "1")
	c.want("GET k0", "new")
}

// A rewrite may take as much memory again, and gives that back.
func TestRewriteMayCopy(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	o, err := parse([]string{"-maxmemory", "1gb"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(o, zerolog.Nop(), nil)
	s.usedMemory.Store(700 << 20)
	end := s.allowCopy()
	if s.usedMemory.Store(1400 << 20); s.overMemory() {
		t.Error("a write is refused for the copy")
	}
	if s.usedMemory.Store(1800 << 20); !s.overMemory() {
		t.Error("there is no limit while a rewrite runs")
	}
	end()
	if s.usedMemory.Store(1025 << 20); !s.overMemory() {
		t.Error("the limit did not come back")
	}
}
