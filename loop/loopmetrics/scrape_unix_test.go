//go:build unix

package loopmetrics_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// scrapedEnv makes the test binary a scraper of that address.
const scrapedEnv = "LOOPMETRICS_TEST_SCRAPE"

func TestMain(m *testing.M) {
	if url := os.Getenv(scrapedEnv); url != "" {
		scrape(url)
	}
	os.Exit(m.Run())
}

// scrape asks fifty times a second until it is killed.
func scrape(url string) {
	for range time.Tick(20 * time.Millisecond) {
		r, err := http.Get(url)
		if err != nil {
			os.Exit(1)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
}

// BenchmarkScrapedFiftyTimesASecond reports what that takes of a core, beside what the program takes
// without it, and beside what net/http takes to serve as many bytes that do not change. An operation
// is a twentieth of a second.
func BenchmarkScrapedFiftyTimesASecond(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "identity")
		_, _ = w.Write(make([]byte, 4000))
	}))
	defer plain.Close()
	for _, who := range []string{"not", "plain", "metrics"} {
		b.Run(who, func(b *testing.B) {
			srv, web, _ := start(b, nil)
			talk(b, srv, "hello")
			if url := map[string]string{"plain": plain.URL, "metrics": web.URL + "/metrics"}[who]; url != "" {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), scrapedEnv+"="+url)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				defer func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait()
				}()
				time.Sleep(time.Second)
			}
			begun, used := time.Now(), cpuTime()
			for b.Loop() {
				time.Sleep(50 * time.Millisecond)
			}
			b.ReportMetric(100*(cpuTime()-used).Seconds()/time.Since(begun).Seconds(), "%-of-a-core")
		})
	}
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
