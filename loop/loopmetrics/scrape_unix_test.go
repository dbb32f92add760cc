//go:build unix

package loopmetrics_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/loopwheel/loopwheel/loop/loopmetrics"
)

// roleEnv makes the test binary a client: "scrape INTERVAL URL", or "talk ADDRESS".
const roleEnv = "LOOPMETRICS_TEST_ROLE"

func TestMain(m *testing.M) {
	if role, where, ok := strings.Cut(os.Getenv(roleEnv), " "); ok {
		fmt.Fprintln(os.Stderr, map[string]func(string) error{"scrape": scrape, "talk": talkOn}[role](where))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// scrape asks at an interval while the last line of the standard input was "on".
func scrape(what string) error {
	interval, url, _ := strings.Cut(what, " ")
	every, err := time.ParseDuration(interval)
	if err != nil {
		return err
	}
	var on atomic.Bool
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			on.Store(in.Text() == "on")
		}
		os.Exit(0)
	}()
	for range time.Tick(every) {
		if !on.Load() {
			continue
		}
		r, err := http.Get(url)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return nil
}

// talkers are connections that say a line a second.
const talkers = 5000

func talkOn(addr string) error {
	conns := make([]net.Conn, talkers)
	for i := range conns {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		conns[i] = c
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	fmt.Println("connected")
	for at, tick := 0, time.Tick(5*time.Millisecond); ; <-tick {
		for range talkers / 200 {
			if _, err := io.WriteString(conns[at%talkers], "hello\n"); err != nil {
				return err
			}
			at++
		}
	}
}

// as starts a client, which ends with b.
func as(b *testing.B, role string) (in io.Writer, out *bufio.Scanner) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	in, err = cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return in, bufio.NewScanner(from)
}

// BenchmarkScrapedFiftyTimesASecond reports what that takes of a core: of a server that does
// nothing else, and of one whose 5,000 connections say a line a second; beside what net/http takes
// there to serve as many bytes that do not change. A server that does nothing is woken by each
// scrape, so the rate matters there; beside the talkers it is asked ten times as often, as their
// own share varies more than what is looked for: so of what it takes to make answers, a
// five-hundredth of a core at most, a tenth is in the figure. An operation is a while with and
// another without, which are short unless LOOPWHEEL_SLOW is set: for figures they must be longer
// than an answer is good for, or it is made anew in each.
func BenchmarkScrapedFiftyTimesASecond(b *testing.B) {
	for _, beside := range []struct{ name, interval string }{{"idle", "20ms"}, {"5000 talk", "2ms"}} {
		for _, what := range []string{"a fixed page", "metrics"} {
			b.Run(beside.name+"/"+what, func(b *testing.B) {
				srv, _, _ := start(b, nil)
				if beside.name != "idle" {
					_, out := as(b, "talk "+srv.LocalAddr().String())
					out.Scan()
				}
				var page http.Handler = http.HandlerFunc(fixedPage)
				if what == "metrics" {
					page = loopmetrics.NewHandler(srv)
				}
				var asked atomic.Int64
				web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					page.ServeHTTP(w, r)
				}))
				defer web.Close()
				scraper, _ := as(b, "scrape "+beside.interval+" "+web.URL+"/metrics")
				var more float64
				for b.Loop() {
					more += share(b, scraper, "on") - share(b, scraper, "off")
				}
				b.ReportMetric(100*50*more/float64(asked.Load()), "%-of-a-core")
			})
		}
	}
}

// fixedPage is as long as metrics are.
func fixedPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Encoding", "identity")
	_, _ = w.Write(make([]byte, 4000))
}

// share returns the CPU seconds that this process takes in a while.
func share(b *testing.B, scraper io.Writer, word string) float64 {
	if _, err := fmt.Fprintln(scraper, word); err != nil {
		b.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond) // until that is seen
	begun, used := time.Now(), cpuTime()
	length := 100 * time.Millisecond
	if os.Getenv("LOOPWHEEL_SLOW") != "" {
		length = 3 * time.Second
	}
	time.Sleep(length)
	return (cpuTime() - used).Seconds() * length.Seconds() / time.Since(begun).Seconds()
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
