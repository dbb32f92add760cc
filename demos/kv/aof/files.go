package aof

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// A File is what a Log appends to: an *os.File.
type File interface {
	io.WriteCloser

	// Sync returns once what was written is on disk.
	Sync() error

	// Name returns the path.
	Name() string
}

// Files are the files of one Log, as its manifest has them. Any goroutine may use it.
type Files struct {
	// OpenFile opens the files that are appended to, for tests of disks that fail. nil means
	// os.OpenFile. Set it before the Files are used.
	OpenFile func(path string, flag int, perm os.FileMode) (File, error)

	dir, name string

	mu   sync.Mutex
	base int // the number of the base, 0 if there is none
	incr []int
	next int
}

// Open reads the manifest of a Log, or begins a new one. dir must be there.
func Open(dir, name string) (*Files, error) {
	f := &Files{dir: dir, name: name, next: 1}
	text, err := os.ReadFile(f.manifest())
	if errors.Is(err, os.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		var kind string
		var n int
		if _, err := fmt.Sscanf(line, "%s %d\n", &kind, &n); err != nil || n < 1 || kind != "base" && kind != "incr" {
			return nil, fmt.Errorf("%s: a line that is not \"base N\" or \"incr N\": %q", f.manifest(), line)
		}
		if kind == "base" {
			f.base = n
		} else {
			f.incr = append(f.incr, n)
		}
		f.next = max(f.next, n+1)
	}
	return f, nil
}

func (f *Files) manifest() string { return filepath.Join(f.dir, f.name+".manifest") }

func (f *Files) path(n int) string {
	return filepath.Join(f.dir, fmt.Sprintf("%s.%d.aof", f.name, n))
}

// Paths returns the files in the order in which they are to be read.
func (f *Files) Paths() (paths []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.base > 0 {
		paths = append(paths, f.path(f.base))
	}
	for _, n := range f.incr {
		paths = append(paths, f.path(n))
	}
	return paths
}

// size returns how many bytes the base and the files since have.
func (f *Files) size() (base, incr int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := func(n int) int64 {
		info, err := os.Stat(f.path(n))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	if f.base > 0 {
		base = of(f.base)
	}
	for _, n := range f.incr {
		incr += of(n)
	}
	return base, incr
}

// grow begins a new file to append to, or goes on with the last one.
func (f *Files) grow(goOn bool) (File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if goOn && len(f.incr) > 0 {
		return f.open(f.path(f.incr[len(f.incr)-1]), os.O_WRONLY|os.O_APPEND)
	}
	n := f.next
	file, err := f.open(f.path(n), os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, err
	}
	if err := f.save(f.base, append(f.incr[:len(f.incr):len(f.incr)], n)); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f.next = n + 1
	return file, nil
}

func (f *Files) open(path string, flag int) (File, error) {
	if f.OpenFile != nil {
		return f.OpenFile(path, flag, 0o600)
	}
	return os.OpenFile(path, flag, 0o600)
}

// save writes the manifest anew, at one stroke.
func (f *Files) save(base int, incr []int) error {
	var b strings.Builder
	if base > 0 {
		fmt.Fprintf(&b, "base %d\n", base)
	}
	for _, n := range incr {
		fmt.Fprintf(&b, "incr %d\n", n)
	}
	if err := WriteFile(f.manifest(), []byte(b.String())); err != nil {
		return err
	}
	f.base, f.incr = base, incr
	return nil
}

// WriteFile replaces a file at one stroke: after a crash it is the old one, or the new one.
func WriteFile(path string, data []byte) error {
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// SyncDir makes what was renamed in a directory last. Windows has no such thing, and needs none.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Lock takes a directory for this process, until unlock is called.
func Lock(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s is in use by another server: stop that, or choose another directory", dir)
	}
	return func() { _ = file.Close() }, nil
}

// Replace writes a new base in place of the old one and of the files up to and including the one
// with the path last: dump writes commands by append. Files that were begun since are kept.
func (f *Files) Replace(last string, dump func(w *Writer) error) error {
	f.mu.Lock()
	n := f.next
	f.next++
	f.mu.Unlock()
	if err := writeBase(f.path(n), dump); err != nil {
		_ = os.Remove(f.path(n))
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := []int{}
	if f.base > 0 {
		old = append(old, f.base)
	}
	incr := f.incr
	for len(incr) > 0 && last != "" {
		done := f.path(incr[0]) == last
		old, incr = append(old, incr[0]), incr[1:]
		if done {
			break
		}
	}
	if err := f.save(n, incr); err != nil {
		return err
	}
	for _, o := range old {
		_ = os.Remove(f.path(o)) // the manifest does not know it any more
	}
	return nil
}
