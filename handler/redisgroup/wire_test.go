package redisgroup

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// Answers belong to commands in their order, whatever a subscription brings between them; and one
// that comes too late is not taken for the next one's.
func TestWire(t *testing.T) {
	here, redis := net.Pipe()
	w := &wire{Conn: here, patience: time.Minute, shared: true}
	var heard []string
	ended := make(chan error, 1)
	go func() {
		err := w.read(func(said []resp.Value) { heard = append(heard, string(said[len(said)-1].Str)) })
		w.fail(err)
		ended <- err
	}()
	got := make([]byte, 1024)
	say := func(answer string) {
		t.Helper()
		if _, err := redis.Read(got); err != nil {
			t.Fatal(err)
		}
		if _, err := redis.Write([]byte(answer)); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = w.about("SUBSCRIBE", []string{"a", "b"}) }()
	say(">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n")
	publish := func(answer string, timeout time.Duration) []error {
		sent := make(chan *await)
		go func() { sent <- w.publish([]byte("two commands"), 2) }()
		say(answer)
		return w.wait(<-sent, timeout)
	}
	errs := publish(":1\r\n>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$3\r\nown\r\n-ERR Can't execute\r\n", 0)
	if len(errs) != 2 || errs[0] != nil || judge(errs[1]) != later || !apart(errs[1]) {
		t.Errorf("answered %v, want nil and a refusal", errs)
	}
	if errs = publish(":1\r\n", time.Millisecond); len(errs) != 2 || !errors.Is(errs[1], errNoAnswer) {
		t.Errorf("answered %v, want one that did not come", errs)
	}
	errs = publish("-LATE\r\n:1\r\n:1\r\n", 0)
	if len(errs) != 2 || errs[0] != nil || errs[1] != nil {
		t.Errorf("answered %v, want what follows the late one", errs)
	}
	_ = redis.Close()
	if err := <-ended; err == nil || w.publish(nil, 1) != nil {
		t.Errorf("read returned %v, and the wire is not broken", err)
	}
	if len(heard) != 3 || heard[2] != "own" {
		t.Errorf("heard %q", heard)
	}
}

// What an outbox keeps back has its taker come again.
func TestOutboxLeavesNothing(t *testing.T) {
	var b outbox
	b.init(1 << 20)
	for range maxBatch + 1 {
		if err := b.add(&outgoing{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []int{maxBatch, 1} {
		<-b.wake
		if batch, _ := b.take(); len(batch) != want {
			t.Errorf("%d were taken, want %d", len(batch), want)
		}
	}
}
