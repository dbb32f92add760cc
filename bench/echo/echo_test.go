package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain lets this binary be a server, as the command is.
func TestMain(m *testing.M) {
	for i, arg := range os.Args {
		if arg == "-serve" {
			panic(runServer(os.Args[i+1]))
		}
	}
	os.Exit(m.Run())
}

// A flag that is given counts for more than -quick, wherever it stands.
func TestQuickAndOtherFlags(t *testing.T) {
	flags := flag.NewFlagSet("echo", flag.ContinueOnError)
	flags.Bool("quick", false, "")
	rounds, idlers := flags.Int("rounds", 5, ""), flags.Int("idlers", 10_000, "")
	window, timeout := flags.Duration("for", time.Second, ""), flags.Duration("timeout", time.Minute, "")
	if err := flags.Parse([]string{"-rounds", "5", "-quick", "-timeout", "10s"}); err != nil {
		t.Fatal(err)
	}
	hurry(flags)
	if *rounds != 5 || *timeout != 10*time.Second || *idlers != 1000 || *window != 400*time.Millisecond {
		t.Errorf("%d rounds, %v, %d idlers, %v", *rounds, *timeout, *idlers, *window)
	}
}

// Each peer echoes small and large frames, whatever pieces they come in, and is measured.
func TestPeers(t *testing.T) {
	o := &options{procs: 1, window: 200 * time.Millisecond, idlers: 20, rest: 10 * time.Millisecond}
	for _, name := range names(slices.Concat(cellPeers, floorPeers, idlePeers)) {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("cc"); name == "epoll-c" && err != nil {
				t.Skip("epoll-c needs a C compiler named cc: apt-get install gcc libc6-dev")
			}
			server, err := startServer(name, setup{loops: 1, timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer server.stop()
			for _, c := range []cell{{conns: 3, size: 64, depth: 1}, {conns: 3, size: 64, depth: 16},
				{conns: 2, size: 16 << 10, depth: 16}, {conns: 3, size: 64, rate: 1000}, {conns: 3, size: 64, anew: true}} {
				r, err := o.measure(server, c)
				if err != nil {
					t.Fatalf("%s: %v", c, err)
				}
				if r.rate <= 0 || r.cpu <= 0 || r.latency.total == 0 || r.rss == 0 {
					t.Errorf("%s: %v/s, %v, %d times, %d bytes", c, r.rate, r.cpu, r.latency.total, r.rss)
				}
			}
			if _, err := o.idleCost(server); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server that does not answer is killed, and another one starts in its place.
func TestStuckServer(t *testing.T) {
	before := patience
	t.Cleanup(func() { patience = before })
	server, err := startServer("gnet", setup{loops: 1, timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { server.stop() }()
	if err := server.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	patience = time.Millisecond
	if _, err := server.ask("usage"); !errors.Is(err, errStuck) {
		t.Fatal(err)
	}
	patience = before
	if err := server.again(); err != nil {
		t.Fatal(err)
	}
	if _, err := server.ask("usage"); err != nil {
		t.Error(err)
	}
}

// Who goes away in the middle of a frame leaves nothing to do.
func TestHalfFrames(t *testing.T) {
	for _, name := range names(slices.Concat(cellPeers, floorPeers)) {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath("cc"); name == "epoll-c" && err != nil {
				t.Skip("epoll-c needs a C compiler named cc: apt-get install gcc libc6-dev")
			}
			server, err := startServer(name, setup{loops: 1, timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			defer server.stop()
			for range 20 {
				c, err := net.Dial("tcp", server.addr)
				if err != nil {
					t.Fatal(err)
				}
				frame := make([]byte, header+smallSize)
				binary.BigEndian.PutUint32(frame, smallSize)
				if _, err := c.Write(frame[:header+1]); err != nil {
					t.Fatal(err)
				}
				c.Close()
			}
			rested := 0 // a tenth of a second, so often
			for tries := 0; rested < 5; tries++ {
				before, err := server.ask("usage")
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
				after, err := server.ask("usage")
				if err != nil {
					t.Fatal(err)
				}
				if rested++; after.CPU-before.CPU > 30*time.Millisecond {
					rested = 0
				}
				if tries > 100 {
					t.Fatalf("it took %v of the last 100 ms", after.CPU-before.CPU)
				}
			}
		})
	}
}

// Another's server that fails is started anew, and left out at last; ours fails the run.
func TestAttempt(t *testing.T) {
	for name, ours := range map[string]bool{"net": false, "loopwheel": true} {
		server, err := startServer(name, setup{loops: 1, timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		tries, wrong, first := 0, errors.New("wrong"), server.addr
		ok, err := attempt(server, "test", func() error { tries++; return wrong })
		if ok || errors.Is(err, wrong) != ours || (err == nil) == ours || (tries == 1) != ours || (server.addr == first) != ours {
			t.Errorf("%s: %v, %v, tried %d times", name, ok, err, tries)
		}
		if ok, err := attempt(server, "test", func() error { return nil }); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
		server.stop()
	}
	rows := summarize([]result{{cell: "a", peer: "loopwheel", cpu: 1}}, []string{"loopwheel", "net"})
	if len(rows) != 1 || rows[0].peer != "loopwheel" {
		t.Errorf("%+v", rows)
	}
}

// Those who watch close what is silent, and nothing else.
func TestWatch(t *testing.T) {
	o := &options{procs: 1, idlers: 200, timeout: 3 * time.Second}
	servers, err := startServers(names(idlePeers), setup{loops: 1, timeout: o.timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServers(servers) })
	for _, s := range servers {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			var w watch
			if err := o.watch(s, &w); err != nil {
				t.Fatal(err)
			}
			want := w.silent
			if strings.HasSuffix(s.name, "none") {
				want = 0
			}
			if w.evicted != want || w.silent != 2 {
				t.Errorf("%d of %d evicted, want %d", w.evicted, w.silent, want)
			}
			if least := w.lateness.quantile(0); w.evicted > 0 && least < 0 {
				t.Errorf("evicted early: %v", least)
			}
		})
	}
}

func TestHistogram(t *testing.T) {
	var h histogram
	for d := time.Duration(0); d < 100_000; d++ {
		h.add(d)
		if low := lower(bucket(d)); low > d || d-low > d/32+1 {
			t.Fatalf("%d is in the bucket from %d", d, low)
		}
	}
	for _, q := range []float64{0, 0.5, 0.99, 0.999} {
		want := q * 100_000
		if got := float64(h.quantile(q)); got > want || got < want*0.96-1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if (&histogram{}).quantile(0.5) != 0 || lower(bucket(1<<62)) > 1<<62 {
		t.Error("the ends of the range")
	}
}

// Frames are found in whatever pieces they come.
func TestRemainder(t *testing.T) {
	var wire []byte
	for n := range 40 {
		wire = binary.BigEndian.AppendUint32(wire, uint32(n))
		wire = append(wire, strings.Repeat("x", n)...)
	}
	for step := 1; step < 100; step++ {
		var r remainder
		var got []byte
		for rest := wire; len(rest) > 0; {
			n := min(step, len(rest))
			got = append(got, r.frames(rest[:n])...)
			rest = rest[n:]
		}
		if !bytes.Equal(got, wire) {
			t.Errorf("in pieces of %d: %d bytes of %d", step, len(got), len(wire))
		}
	}
}

func TestReport(t *testing.T) {
	dir := t.TempDir()
	o := &options{out: dir, peers: []string{"loopwheel", "net"}, idlers: 3}
	var results []result
	for _, peer := range o.peers {
		for _, c := range []cell{{conns: 1, size: 64, depth: 1}, {conns: 100, size: 16 << 10, depth: 16}} {
			r := result{cell: c.String(), peer: peer, rate: 1000, cpu: 2, rss: 1 << 20}
			r.latency.add(time.Millisecond)
			results = append(results, r, r)
		}
	}
	if err := o.report(results, []idleCost{{"net", 1000, 1}}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"echo.csv": "\"100 conns, 16 KiB, depth 16\",net,1000,2,2,2,", "echo.svg": "<svg ",
	} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %v, %s", name, err, text)
		}
	}
}

// What a run has written is what the tables in the documents are made of.
func TestDocs(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	before := "Text.\n\n<!-- echo CPU -->\n\nold\n\n<!-- end of echo CPU -->\n\n<!-- echo p99 -->\n<!-- end of echo p99 -->\nMore.\n"
	if err := os.WriteFile(page, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	rows := []summary{
		{cell: "100 conns, 64 B, depth 1", peer: "loopwheel", rate: 5, cpu: spread{1.5, 1, 2}, p50: 1, p99: 1234 * time.Microsecond, p9s: 3},
		{cell: "100 conns, 64 B, depth 1", peer: "net", rate: 5, cpu: spread{2.5, 2, 3}, p50: 1, p99: 5 * time.Millisecond, p9s: 3},
	}
	run := filepath.Join(dir, "run.csv")
	if err := writeCSV(run, rows, []idleCost{{peer: "net", memory: 7, cpu: 8}}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing changes
		if err := updateDocs(dir, []string{run}); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(page)
		want := "Text.\n\n<!-- echo CPU -->\n\n| | loopwheel | net |\n|---|---|---|\n" +
			"| 100 conns, 64 B, depth 1 | 1.50 (1.00–2.00) | 2.50 (2.00–3.00) |\n\n<!-- end of echo CPU -->\n\n" +
			"<!-- echo p99 -->\n\n| | loopwheel | net |\n|---|---|---|\n| 100 conns, 64 B, depth 1 | 1.23ms | 5ms |\n\n" +
			"<!-- end of echo p99 -->\nMore.\n"
		if err != nil || string(after) != want {
			t.Fatalf("%v\n%s\nwant\n%s", err, after, want)
		}
	}
	if err := updateDocs(dir, []string{filepath.Join(dir, "none.csv")}); err == nil {
		t.Error("a file that is not there is taken")
	}
}
