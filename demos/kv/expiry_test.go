package main

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

const (
	one  = ":1\r\n"
	zero = ":0\r\n"
	null = replyNull
)

// TestExpires sets times in each way that there is. A key is there until its last millisecond, and
// gone in the next one: for who asks for it, and for who counts the keys that the wheel has left.
func TestExpires(t *testing.T) {
	began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Unix() // which is when virtual time begins
	for _, tt := range []struct {
		commands string
		after    time.Duration
	}{
		{"SET k v PX 300", 300 * time.Millisecond},
		{"SET k v EX 1", time.Second},
		{fmt.Sprintf("SET k v EXAT %d", began+2), 2 * time.Second},
		{fmt.Sprintf("SET k v PXAT %d500", began+2), 2500 * time.Millisecond},
		{"SET k v|PEXPIRE k 300", 300 * time.Millisecond},
		{"SET k v|EXPIRE k 1", time.Second},
		{fmt.Sprintf("SET k v|EXPIREAT k %d", began+1), time.Second},
		{fmt.Sprintf("SET k v|PEXPIREAT k %d001", began+1), 1001 * time.Millisecond},
		{"SET k v|GETEX k PX 300", 300 * time.Millisecond},
		{"SET k v PX 100|SET k v PX 300", 300 * time.Millisecond},
		{"SET k v PX 900|PEXPIRE k 300", 300 * time.Millisecond},
		{"SET k u PX 300|SET k v KEEPTTL", 300 * time.Millisecond},
		{"SET k 0 PX 300|INCR k|APPEND k x", 300 * time.Millisecond},
		{"SET k v EX 7200", 2 * time.Hour},
		{"SET k v PX 100|DEL k|SET k v PX 300", 300 * time.Millisecond},
	} {
		t.Run(tt.commands, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := startMemory(t, 3)
				p := srv.Open()
				for line := range strings.SplitSeq(tt.commands, "|") {
					if got := do(p, line+"\r\n"); strings.HasPrefix(got, "-") {
						t.Fatalf("%s: got %q", line, got)
					}
				}
				srv.Sleep(tt.after)
				want(t, p, "EXISTS k", one, "DBSIZE", one)
				srv.Sleep(time.Millisecond)
				want(t, p, "DBSIZE", zero, "GET k", null, "TTL k", ":-2\r\n")
			})
		})
	}
}

// A key that expires while its loop is busy with what comes before a command in the same turn is
// gone for that command, though the wheel has not turned yet.
func TestExpiresInATurn(t *testing.T) {
	commands["nap"] = &command{arity: 1, run: func(*session, [][]byte) error {
		testkit.Block(400 * time.Microsecond)
		return nil
	}}
	t.Cleanup(func() { delete(commands, "nap") })
	synctest.Test(t, func(t *testing.T) {
		srv := startMemory(t, 1)
		p := srv.Open()
		want(t, p, "SET k v PX 300", replyOK)
		srv.Sleep(300*time.Millisecond + 700*time.Microsecond)
		p.Send("GET k\r\nNAP\r\nDBSIZE\r\nSCAN 0\r\nGET k\r\nDBSIZE\r\n")
		srv.Sleep(time.Second)
		got := p.Received()
		if want := "$1\r\nv\r\n" + one + "*2\r\n$1\r\n0\r\n*0\r\n" + null + zero; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// What removes a key, or the time of one, takes it from the wheel: a key of the same name lives on.
func TestExpiryIsForgotten(t *testing.T) {
	for _, commands := range []string{
		"SET k v PX 300|SET k v", "SET k v PX 300|PERSIST k", "SET k v PX 300|GETEX k PERSIST", "SET k v PX 300|MSET k v",
		"SET k v PX 300|DEL k|SET k v", "SET k v PX 300|GETDEL k|SET k v", "SET k v PX 300|FLUSHALL|SET k v",
		"SET k v PX 300|EXPIRE k 0|SET k v", "SET k v PX 300|SET k v PXAT 1|SET k v",
	} {
		t.Run(commands, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := startMemory(t, 3)
				p := srv.Open()
				do(p, strings.ReplaceAll(commands, "|", "\r\n")+"\r\n")
				want(t, p, "TTL k", ":-1\r\n", "INFO keyspace", "$44\r\n# Keyspace\r\ndb0:keys=1,expires=0,avg_ttl=0\r\n\r\n")
				srv.Sleep(time.Hour)
				want(t, p, "GET k", "$1\r\nv\r\n")
			})
		})
	}
}

// Thousands of keys that nobody asks for go one by one, each in its own millisecond.
func TestExpiresExactly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := startMemory(t, 3)
		p := srv.Open()
		const keys = 5000
		for i := range keys {
			p.Send(wire("SET", fmt.Sprint("key", i), "v", "PX", fmt.Sprint(i+1)))
		}
		p.Received()
		for passed := 0; passed <= keys; passed += 100 {
			if got, want := do(p, "DBSIZE\r\n"), fmt.Sprintf(":%d\r\n", min(keys, keys-passed+1)); got != want {
				t.Fatalf("after %d ms: got %q keys, want %q", passed, got, want)
			}
			srv.Sleep(100 * time.Millisecond)
		}
		if got, want := do(p, "INFO stats\r\n"), fmt.Sprintf("expired_keys:%d\r\n", keys); !strings.Contains(got, want) {
			t.Errorf("INFO stats: got %q, want %q in it", got, want)
		}
	})
}
