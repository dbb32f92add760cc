package loop_test

import (
	"context"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/loopwheel/loopwheel/loop"
)

// Urgent data (MSG_OOB) in the middle of much neither stops a pipe nor has its loop spin.
func TestPipePassesUrgentData(t *testing.T) {
	p := newPiped(t, context.Background(), loop.PipeConfig{})
	c, b := p.open()
	stream(t, c, b, 1<<20)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var sendErr error
		err := raw.Write(func(fd uintptr) bool {
			sendErr = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil)
			return sendErr != unix.EAGAIN
		})
		if err != nil || sendErr != nil {
			t.Fatal(err, sendErr)
		}
		stream(t, c, b, 256<<10)
	}
}
