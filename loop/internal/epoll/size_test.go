//go:build linux && !386 && !s390x

package epoll

import (
	"testing"
	"unsafe"
)

// One word more makes what every connection has a size class larger.
func TestSocketIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(socket{}); size > 48 && unsafe.Sizeof(uintptr(0)) == 8 {
		t.Errorf("a socket takes %d bytes", size)
	}
}
