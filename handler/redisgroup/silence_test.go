package redisgroup

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A wire on which nothing comes asks for signs of life, and is given up without any: 8 s after the
// last one.
func TestWireSilence(t *testing.T) {
	for _, answered := range []int{0, 1, 10} {
		synctest.Test(t, func(t *testing.T) {
			d := newDialogue(t).begin()
			began, counted := time.Now(), make(chan int, 1)
			go func() {
				buf, pings := make([]byte, 100), 0
				for {
					if _, err := d.redis.Read(buf); err != nil {
						counted <- pings
						return
					}
					if pings++; pings <= answered {
						_, _ = d.redis.Write([]byte("+PONG\r\n"))
					}
				}
			}()
			var timeout net.Error
			if err := <-d.ended; !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("it ended with %v", err)
			}
			want := time.Duration(answered+maxSilent+1) * pingEvery
			pings := <-counted
			if took := time.Since(began); took != want || pings != answered+maxSilent {
				t.Errorf("%d pings answered: given up after %v and %d pings, want %v", answered, took, pings, want)
			}
			_ = d.redis.Close()
		})
	}
}

// So is one that takes nothing, whoever waits for that: none waits for longer than its patience, or
// than until the wire is given up.
func TestWireTakesNothing(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			d := newDialogue(t)
			d.wire.patience = patience
			d.begin()
			began, want := time.Now(), min(patience, (maxSilent+1)*pingEvery)
			sent := d.wire.publish([]byte("what nobody reads"), 1)
			if took := time.Since(began); took != want {
				t.Errorf("it waited for %v, want %v", took, want)
			}
			if errs := d.wire.wait(sent, 0); len(errs) != 1 || judge(errs[0]) != unclear {
				t.Errorf("it was answered %v", errs)
			}
			<-d.ended
			if err := d.wire.about("SUBSCRIBE", []string{"a"}); !errors.Is(err, errBroken) {
				t.Errorf("it subscribes: %v", err)
			}
			_ = d.redis.Close()
		})
	}
}

// A wire that only hears needs no pings, and is not given up.
func TestWireHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDialogue(t).begin()
		for range 20 {
			time.Sleep(pingEvery - time.Millisecond)
			d.answer(push("message", "a", "b"))
		}
		if err := d.end(); !errors.Is(err, io.EOF) || len(d.heard) != 20 {
			t.Errorf("%v, heard %q", err, d.heard)
		}
	})
}

// A very long message comes whole, and its memory is given back.
func TestWireGivesMemoryBack(t *testing.T) { synctest.Test(t, wireGivesMemoryBack) }

func wireGivesMemoryBack(t *testing.T) {
	const long = 32 << 20
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d := newDialogue(t).begin()
	d.answer(fmt.Sprintf(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$%d\r\n%s\r\n", long, strings.Repeat("x", long)))
	d.answer(push("message", "b"))
	runtime.GC()
	runtime.ReadMemStats(&after)
	if more := int(after.HeapAlloc) - int(before.HeapAlloc); more > long {
		t.Errorf("%d MiB more are in use", more>>20)
	}
	d.end()
	if len(d.heard) != 2 || d.heard[1] != "message b" {
		t.Errorf("heard %d", len(d.heard))
	}
}
