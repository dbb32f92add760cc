package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/loopwheel/loopwheel/codec/mqtt"
	"github.com/loopwheel/loopwheel/internal/testkit"
)

// TestStateFile: a state is loaded once. If the next one cannot be written, the operator finds it
// under another name. -state may be a symbolic link, which stays one.
func TestStateFile(t *testing.T) {
	dir, addr := t.TempDir(), testkit.FreeAddr(t)
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	real := filepath.Join(data, "real")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	gone := func(file string) {
		t.Helper()
		if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want no file", file, err)
		}
	}
	// serve starts a broker, sees whether it has a session, and stops it.
	serve := func(want bool, sig syscall.Signal) error {
		t.Helper()
		p := process(t, addr, "", "-state", link)
		gone(real)
		c, present, err := join(addr, mqtt.Connect{Version: mqtt.V5, ClientID: []byte("ann"),
			Properties: mqtt.Properties(nil).AppendNumber(mqtt.SessionExpiry, 3600)})
		must(err)
		defer c.nc.Close()
		if present != want {
			t.Errorf("session present: %v, want %v", present, want)
		}
		if sig == 0 { // it cannot write
			must(os.Rename(data, data+"2"))
			defer func() { must(os.Rename(data+"2", data)) }()
			sig = syscall.SIGTERM
		}
		must(p.Process.Signal(sig))
		return p.Wait()
	}
	must(os.Mkdir(data, 0o700))
	must(os.Symlink(filepath.Join("data", "real"), link))
	must(serve(false, syscall.SIGTERM))
	saved, err := os.ReadFile(real)
	must(err)
	if serve(true, 0) == nil {
		t.Error("the broker ends without an error although it could not write")
	}
	gone(real)
	old, err := os.ReadFile(real + ".old")
	must(err)
	if !bytes.Equal(old, saved) {
		t.Error("the state that was loaded is not in the other file")
	}
	_ = serve(false, syscall.SIGKILL) // not with a state of the past
	must(os.Rename(real+".old", real))
	must(serve(true, syscall.SIGTERM))
	gone(real + ".old")
	must(serve(true, syscall.SIGTERM))
	if to, err := os.Readlink(link); to != filepath.Join("data", "real") {
		t.Errorf("the link leads to %q, %v", to, err)
	}
}
