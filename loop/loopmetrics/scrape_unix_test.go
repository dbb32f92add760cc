//go:build unix

package loopmetrics_test

import (
	"io"
	"net/http"
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
// without it. An operation is a twentieth of a second.
func BenchmarkScrapedFiftyTimesASecond(b *testing.B) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	for _, scraped := range []bool{false, true} {
		b.Run(map[bool]string{false: "not", true: "yes"}[scraped], func(b *testing.B) {
			srv, web, _ := start(b, nil)
			talk(b, srv, "hello")
			if scraped {
				cmd := exec.Command(exe)
				cmd.Env = append(os.Environ(), scrapedEnv+"="+web.URL+"/metrics")
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
