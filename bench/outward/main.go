// Command outward measures what goes out, and UDP, beside others: the CPU time of a process per
// datagram, per dial, or per message through a proxy, in rounds that take turns. Each figure is a
// median with its minimum and maximum.
//
//	go run ./outward [-rounds 5] udp|sessions|flood|dns|dial|calls|proxy
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/bench/internal/place"
	"github.com/loopwheel/loopwheel/bench/internal/stalls"
)

var (
	turns   = flag.Int("rounds", 5, "take this `number` of turns")
	sources = flag.Int("sources", 1_000_000, "flood from this `number` of addresses")
	cell    = flag.String("cell", "", "measure only echoes over UDP whose title has this `text` in it, such as \" 1 peers, depth 1 \"")
	where   = flag.String("place", "", "over UDP, and for calls: "+place.Usage)
	only    = flag.String("only", "", "measure only contenders of these `names`, separated by commas")
)

func main() {
	if kind := os.Getenv("OUTWARD_SERVER"); kind != "" {
		servers[kind]()
		return
	}
	flag.Parse()
	what := map[string]func(){"udp": benchUDP, "dial": benchDial, "calls": benchCalls, "proxy": benchProxy,
		"sessions": benchSessions, "flood": benchFlood, "dns": benchDNS}[flag.Arg(0)]
	if what == nil {
		fmt.Fprintln(os.Stderr, "want udp, sessions, flood, dns, dial, calls or proxy")
		os.Exit(2)
	}
	what()
}

// servers are what child processes run: each prints its address, and ends when its input does.
var servers = map[string]func(){"stalls": stalls.Print, "udp-loopwheel": udpLoopwheel, "udp-net": udpNet, "udp-batches": udpBatches, "udp-gnet": udpGnet,
	"udp-sessions": udpSessions, "udp-flooded": udpFlooded, "dns-miekg": dnsMiekg, "flooder": flooder, "tcp-sink": tcpSink, "tcp-echo": tcpEcho,
	"dial-loopwheel": dialLoopwheel, "dial-loopwheel-name": dialLoopwheelName, "dial-net": dialNet, "dial-net-name": dialNetName,
	"proxy-loopwheel": proxyLoopwheel, "proxy-iocopy": proxyIOCopy, "tcp-thirds": tcpThirds, "tcp-frames": tcpFrames,
	"calls": allAnswered.calls, "echoes": allAnswered.echoes, "calls-thirds": twoThirds.calls, "echoes-thirds": twoThirds.echoes,
	"calls-1": oneByOne.calls, "echoes-1": oneByOne.echoes}

// A process is a child that is measured.
type process struct {
	cmd  *exec.Cmd
	in   io.Closer
	addr string
	out  io.Reader
}

// start runs one of servers, with one processor.
func start(kind string, env ...string) *process {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "OUTWARD_SERVER="+kind, "GOMAXPROCS=1"), env...)
	return run(cmd)
}

func run(cmd *exec.Cmd) *process {
	cmd.Stderr = os.Stderr
	in := must(cmd.StdinPipe())
	out := must(cmd.StdoutPipe())
	check(cmd.Start())
	line := make([]byte, 200)
	n := must(out.Read(line))
	return &process{cmd: cmd, in: in, addr: strings.TrimSpace(string(line[:n])), out: out}
}

func (p *process) stop() {
	p.in.Close()
	_ = p.cmd.Wait()
}

// cpu returns what the process has used so far.
func (p *process) cpu() time.Duration { return cpuOf(p.cmd.Process.Pid) }

func cpuOf(pid int) time.Duration { return scheduled(pid, 0) }

// waited returns for how long threads of the process wanted a processor and had none.
func (p *process) waited() time.Duration { return scheduled(p.cmd.Process.Pid, 1) }

// scheduled adds up a number of all threads' schedstat: 0 is the time on a processor, 1 the time of
// waiting for one.
func scheduled(pid, field int) (total time.Duration) {
	for _, t := range must(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))) {
		if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, t.Name())); err == nil { // it has not ended
			n, _ := strconv.ParseInt(strings.Fields(string(b))[field], 10, 64)
			total += time.Duration(n)
		}
	}
	return total
}

// figures are what was measured of one contender.
type figures []float64

func (f figures) String() string {
	s := slices.Sorted(slices.Values(f))
	return fmt.Sprintf("%8.3f (%.3f to %.3f)", s[len(s)/2], s[0], s[len(s)-1])
}

func (f figures) median() float64 { return slices.Sorted(slices.Values(f))[len(f)/2] }

// compare runs contenders in turns, and prints each beside the first. It returns the figures.
func compare(title string, names []string, one func(name string) float64) map[string]figures {
	if *only != "" {
		names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !slices.Contains(strings.Split(*only, ","), n) })
	}
	all := make(map[string]figures)
	for range *turns {
		for _, n := range names {
			all[n] = append(all[n], one(n))
		}
	}
	for _, n := range names {
		fmt.Printf("%-34s %-22s %s µs, %.2f of %s\n", title, n, all[n], all[n].median()/all[names[0]].median(), names[0])
	}
	return all
}

func untilInputEnds() { _, _ = io.Copy(io.Discard, os.Stdin) }

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func listen() net.Listener { return must(net.Listen("tcp", "127.0.0.1:0")) }
