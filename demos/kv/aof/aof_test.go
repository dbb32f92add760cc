package aof

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/internal/seed"
)

// waitFor waits until something is true.
func waitFor(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come: %s", what)
		}
	}
}

// readAll returns the commands of all files, each as text.
func readAll(t *testing.T, dir string) (commands []string) {
	t.Helper()
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files.Paths() {
		if err := Read(path, collect(&commands)); err != nil {
			t.Fatal(err)
		}
	}
	return commands
}

func collect(commands *[]string) func(args [][]byte) error {
	return func(args [][]byte) error {
		*commands = append(*commands, string(bytes.Join(args, []byte(" "))))
		return nil
	}
}

func args(words ...string) (out [][]byte) {
	for _, w := range words {
		out = append(out, []byte(w))
	}
	return out
}

// What is appended is there at the next start, in its order, whatever is cut, replaced and opened
// again between.
func TestLog(t *testing.T) {
	random := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	dir := t.TempDir()
	var want []string
	for round := range 10 {
		files, err := Open(dir, "log")
		if err != nil {
			t.Fatal(err)
		}
		l, err := Start(files, Policy(round%3), func(int64, error) {})
		if err != nil {
			t.Fatal(err)
		}
		for range random.IntN(200) {
			word := strings.Repeat("x", random.IntN(300))
			l.Append(args("SET", fmt.Sprint(len(want)), word))
			want = append(want, fmt.Sprintf("SET %d %s", len(want), word))
			if random.IntN(50) == 0 {
				want = rewrite(t, l, files, want)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, dir); !slices.Equal(got, want) {
			t.Fatalf("round %d: %d commands, want %d", round, len(got), len(want))
		}
	}
}

// rewrite replaces all that was appended by one command, and appends another meanwhile.
func rewrite(t *testing.T, l *Log, files *Files, before []string) (want []string) {
	t.Helper()
	type cut struct {
		last string
		err  error
	}
	cuts := make(chan cut, 1)
	l.Cut(func(last string, err error) { cuts <- cut{last, err} })
	l.Append(args("MEANWHILE"))
	c := <-cuts
	if c.err != nil {
		t.Fatal(c.err)
	}
	sum := fmt.Sprint("SUM ", len(before))
	if err := files.Replace(c.last, func(w *Writer) error { return w.Write(args(strings.Fields(sum)...)...) }); err != nil {
		t.Fatal(err)
	}
	return []string{sum, "MEANWHILE"}
}

// With Always, what counts as synced is on disk.
func TestSynced(t *testing.T) {
	dir := t.TempDir()
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	offsets := make(chan int64, 100)
	l, err := Start(files, Always, func(offset int64, err error) { offsets <- offset })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for i := range 20 {
		l.Append(args("N", fmt.Sprint(i)))
		for offset := int64(0); offset < l.Appended(); offset = <-offsets {
			continue
		}
		if got := readAll(t, dir); len(got) != i+1 {
			t.Fatalf("%d commands are on disk, %d count as synced", len(got), i+1)
		}
	}
	if base, incr := l.Size(); base != 0 || incr != l.Appended() || l.Behind() != 0 {
		t.Errorf("sizes %d and %d, %d behind, want 0, %d, 0", base, incr, l.Behind(), l.Appended())
	}
}

// A script is a file whose writes go wrong as it says.
type script struct {
	File
	mu    sync.Mutex
	write func(p []byte) (int, error) // nil: as it is
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	write := s.write
	s.mu.Unlock()
	if write != nil {
		return write(p)
	}
	return s.File.Write(p)
}

func (s *script) setWrite(f func(p []byte) (int, error)) {
	s.mu.Lock()
	s.write = f
	s.mu.Unlock()
}

// A disk that takes a part of what is written and then nothing: nothing is lost nor written twice
// once it works again.
func TestShortWrites(t *testing.T) {
	dir := t.TempDir()
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	file := new(script)
	files.OpenFile = func(path string, flag int, perm os.FileMode) (File, error) {
		f, err := os.OpenFile(path, flag, perm)
		file.File = f
		return file, err
	}
	var failures sync.WaitGroup
	failures.Add(1)
	l, err := Start(files, EverySecond, func(_ int64, err error) {
		if err != nil {
			failures.Done() // told once, however often it is tried
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	left := 1000
	file.setWrite(func(p []byte) (int, error) {
		n := min(left, len(p), 7)
		left -= n
		n, _ = file.File.Write(p[:n])
		return n, full
	})
	var want []string
	for i := range 300 {
		l.Append(args("SET", fmt.Sprint(i)))
		want = append(want, fmt.Sprint("SET ", i))
	}
	failures.Wait()
	if !errors.Is(l.Err(), full) || l.Behind() == 0 {
		t.Errorf("error %v, %d bytes behind", l.Err(), l.Behind())
	}
	file.setWrite(nil)
	waitFor(t, "the disk works again", func() bool { return l.Err() == nil && l.Behind() == 0 })
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, dir); !slices.Equal(got, want) {
		t.Errorf("%d commands, want %d", len(got), len(want))
	}
}

// A new file that cannot be made is no harm: the old one goes on.
func TestCutFails(t *testing.T) {
	dir := t.TempDir()
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	files.OpenFile = func(path string, flag int, perm os.FileMode) (File, error) {
		if opened++; opened == 2 {
			return nil, errors.New("too many open files")
		}
		return os.OpenFile(path, flag, perm)
	}
	l, err := Start(files, Always, func(int64, error) {})
	if err != nil {
		t.Fatal(err)
	}
	cuts := make(chan error, 1)
	l.Append(args("A"))
	l.Cut(func(_ string, err error) { cuts <- err })
	if err := <-cuts; err == nil {
		t.Error("a cut succeeded without a file")
	}
	l.Append(args("B"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, dir); !slices.Equal(got, []string{"A", "B"}) {
		t.Errorf("%q", got)
	}
}

// A base that cannot be written leaves all as it was.
func TestReplaceFails(t *testing.T) {
	dir := t.TempDir()
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Start(files, Always, func(int64, error) {})
	if err != nil {
		t.Fatal(err)
	}
	l.Append(args("A"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left on device")
	if err := files.Replace(files.Paths()[0], func(w *Writer) error { return errors.Join(w.Write(args("HALF")...), full) }); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	if got := readAll(t, dir); !slices.Equal(got, []string{"A"}) {
		t.Errorf("%q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp")); len(left) > 0 {
		t.Errorf("what is left over: %q", left)
	}
}

// A file that is cut at any byte gives the commands before that, and says where it is bad; a
// transaction is whole or not there.
func TestReadCut(t *testing.T) {
	var data []byte
	var ends []int // after so many bytes there is one unit more
	for _, unit := range [][]string{{"SET a 1"}, {"MULTI", "SET b 2", "SET c 3", "EXEC"}, {"DEL a"}} {
		for _, line := range unit {
			data = resp.AppendCommand(data, strings.Fields(line)...)
		}
		ends = append(ends, len(data))
	}
	whole := []string{"SET a 1", "SET b 2", "SET c 3", "DEL a"}
	path := filepath.Join(t.TempDir(), "file")
	for cut := range len(data) + 1 {
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		err := Read(path, collect(&got))
		good, commands := 0, 0
		for i, end := range ends {
			if end <= cut {
				good, commands = end, []int{1, 3, 4}[i]
			}
		}
		if !slices.Equal(got, whole[:commands]) {
			t.Fatalf("cut at %d: %q", cut, got)
		}
		var bad *CorruptError
		if good == cut && err == nil {
			continue
		}
		if !errors.As(err, &bad) || !bad.Torn() || bad.Offset != int64(good) {
			t.Fatalf("cut at %d: %v, want it bad at %d", cut, err, good)
		}
	}
}

// Whatever one byte is changed to, what is read is a part of what was written, or other values.
func TestReadGarbled(t *testing.T) {
	data := []byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n")
	path := filepath.Join(t.TempDir(), "file")
	for at := range data {
		for _, b := range []byte{0, '\r', '\n', '*', '$', '9', '-', 'x', 0xff} {
			garbled := slices.Clone(data)
			garbled[at] = b
			if err := os.WriteFile(path, garbled, 0o600); err != nil {
				t.Fatal(err)
			}
			n := 0
			err := Read(path, func(args [][]byte) error {
				n++
				return nil
			})
			if bad := new(CorruptError); err != nil && !errors.As(err, &bad) || n > 2 || err == nil && n == 0 {
				t.Errorf("byte %d is %q: %d commands, %v", at, b, n, err)
			}
		}
	}
}

func TestManifest(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log.manifest"), []byte("base 3\nincr 4\nincr 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Open(dir, "log")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range files.Paths() {
		names = append(names, filepath.Base(p))
	}
	if !slices.Equal(names, []string{"log.3.aof", "log.4.aof", "log.7.aof"}) || files.next != 8 {
		t.Errorf("%q, the next is %d", names, files.next)
	}
	for _, bad := range []string{"base\n", "base 0\n", "other 1\n", "base x\n"} {
		if err := os.WriteFile(filepath.Join(dir, "log.manifest"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(dir, "log"); err == nil || !strings.Contains(err.Error(), "base N") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(dir); err == nil || !strings.Contains(err.Error(), "in use by another server") {
		t.Error(err)
	}
	unlock()
	again, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
