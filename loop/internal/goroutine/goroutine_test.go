package goroutine

import (
	"strings"
	"testing"
)

func TestStack(t *testing.T) {
	id, end := make(chan uint64), make(chan struct{})
	defer close(end)
	waiter := func() { id <- ID(); <-end }
	for range 200 { // more than the first dump holds
		go waiter()
		n := <-id
		stack := string(Stack(n))
		if !strings.Contains(stack, "TestStack") || strings.Contains(stack, "\n\n") {
			t.Fatalf("the stack of goroutine %d:\n%s", n, stack)
		}
	}
	if stack := Stack(1 << 60); stack != nil {
		t.Errorf("a goroutine that does not exist has the stack %s", stack)
	}
}

func TestCut(t *testing.T) {
	const dump = "goroutine 1 [running]:\na\n\ngoroutine 12 [select]:\nb\n\ngoroutine 2 [select]:\nc\n"
	for _, test := range []struct {
		id     uint64
		cutOff bool
		want   string
	}{
		{1, false, "goroutine 1 [running]:\na"},
		{12, false, "goroutine 12 [select]:\nb"},
		{12, true, "goroutine 12 [select]:\nb"},
		{2, false, "goroutine 2 [select]:\nc"},
		{2, true, ""},
		{3, false, ""},
	} {
		if got := string(cut([]byte(dump), test.id, test.cutOff)); got != test.want {
			t.Errorf("goroutine %d: %q, want %q", test.id, got, test.want)
		}
	}
}
