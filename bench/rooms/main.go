// Command rooms measures rooms over two processes, on Redis, beside centrifugal/centrifuge with its
// Redis broker: time of a delivery across processes, CPU time of the servers per delivery and of
// Redis per message, memory of a connection.
//
//	go run ./rooms -conns 2000 -rooms 100 -rate 250 -ordered
//
// Each contender has two processes of its own and a redis-server of its own; they take turns.
// Clients speak WebSocket, and all run in this process, whose CPU time does not count.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// roleEnv makes the program one of the servers.
const roleEnv = "BENCH_ROOMS_ROLE"

type options struct {
	conns, rooms, rate, size int
	length                   time.Duration
	rounds                   int
	ordered                  bool
	atOnce                   bool
}

func main() {
	if role := os.Getenv(roleEnv); role != "" {
		serve(strings.Fields(role))
		return
	}
	var o options
	flag.IntVar(&o.conns, "conns", 2000, "clients, half on each process")
	flag.IntVar(&o.rooms, "rooms", 100, "rooms")
	flag.IntVar(&o.rate, "rate", 250, "messages per second in all rooms")
	flag.IntVar(&o.size, "size", 64, "bytes of padding in a message")
	flag.DurationVar(&o.length, "for", 5*time.Second, "length of a round")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each")
	flag.BoolVar(&o.ordered, "ordered", false, "ordered rooms, beside history and recovery")
	flag.BoolVar(&o.atOnce, "at-once", false, "members of the same process get messages of plain rooms at once, the default of loopwheel; else in Redis' order, as centrifuge's do")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "rooms:", err)
		os.Exit(1)
	}
}

var contenders = []string{"loopwheel", "centrifuge"}

// figures are what a round gives.
type figures struct {
	across50, across99, local50, local99 time.Duration
	perDelivery, perMessage              time.Duration // CPU time of the servers, of Redis
	perConn                              float64       // KiB
	deliveries                           int
}

func run(o options) error {
	results := make(map[string][]figures)
	for round := range o.rounds {
		for i := range contenders {
			name := contenders[(i+round)%len(contenders)]
			f, err := measure(name, o)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			results[name] = append(results[name], f)
			fmt.Printf("%-10s across p50 %v p99 %v, local p50 %v p99 %v, servers %v per delivery, Redis %v per message, %.1f KiB per connection, %d deliveries\n",
				name, f.across50, f.across99, f.local50, f.local99, f.perDelivery, f.perMessage, f.perConn, f.deliveries)
		}
	}
	summary(results)
	return nil
}

// summary prints medians, and what ours are to theirs in the same round.
func summary(results map[string][]figures) {
	ours, theirs := results[contenders[0]], results[contenders[1]]
	ratio := func(name string, of func(f figures) float64) {
		var rs []float64
		for i := range ours {
			rs = append(rs, of(ours[i])/of(theirs[i]))
		}
		slices.Sort(rs)
		fmt.Printf("%-32s %.2f of centrifuge's (%.2f to %.2f)\n", name, rs[len(rs)/2], rs[0], rs[len(rs)-1])
	}
	ratio("p99 across processes", func(f figures) float64 { return float64(f.across99) })
	for _, f := range ours {
		fmt.Printf("p99 across processes: %.2f of 1.5 times the local one and 1 ms\n", float64(f.across99)/float64(f.local99*3/2+time.Millisecond))
	}
	ratio("CPU of the servers per delivery", func(f figures) float64 { return float64(f.perDelivery) })
	ratio("CPU of Redis per message", func(f figures) float64 { return float64(f.perMessage) })
	ratio("memory of a connection", func(f figures) float64 { return f.perConn })
}

// measure runs one contender once.
func measure(name string, o options) (f figures, err error) {
	redisAddr, redisPid, stop, err := startRedis()
	if err != nil {
		return f, err
	}
	defer stop()
	var addrs []string
	var pids []int
	for range 2 {
		addr, pid, stop, err := startServer(fmt.Sprintf("%s %s %v %v", name, redisAddr, o.ordered, o.atOnce))
		if err != nil {
			return f, err
		}
		defer stop()
		addrs, pids = append(addrs, addr), append(pids, pid)
	}
	before := rss(pids)
	c := newCrowd(name, addrs, o)
	if err := c.connect(); err != nil {
		return f, err
	}
	defer c.close()
	time.Sleep(500 * time.Millisecond)
	f.perConn = float64(rss(pids)-before) / 1024 / float64(o.conns)
	c.talk(time.Second) // to warm up
	c.reset()
	servers, redis := cpu(pids), cpu([]int{redisPid})
	said := c.talk(o.length)
	f.deliveries = int(c.delivered.Load())
	if want := said * (o.conns / o.rooms); f.deliveries != want {
		return f, fmt.Errorf("%d deliveries, want %d; %s", f.deliveries, want, c.fault())
	}
	f.perDelivery = (cpu(pids) - servers) / time.Duration(f.deliveries)
	f.perMessage = (cpu([]int{redisPid}) - redis) / time.Duration(said)
	f.across50, f.across99 = percentiles(c.late(true))
	f.local50, f.local99 = percentiles(c.late(false))
	return f, nil
}

func percentiles(all []time.Duration) (p50, p99 time.Duration) {
	slices.Sort(all)
	if len(all) == 0 {
		return 0, 0
	}
	return all[len(all)/2].Round(time.Microsecond), all[len(all)*99/100].Round(time.Microsecond)
}

// startRedis starts a redis-server that keeps nothing on disk.
func startRedis() (addr string, pid int, stop func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", 0, nil, err
	}
	addr = ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	for range 6000 { // a minute
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			return addr, cmd.Process.Pid, stop, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	return "", 0, nil, fmt.Errorf("redis-server does not listen at %s", addr)
}

// startServer starts this program in a role.
func startServer(role string) (addr string, pid int, stop func(), err error) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	if err != nil {
		stop()
		return "", 0, nil, err
	}
	return strings.TrimSpace(line), cmd.Process.Pid, stop, nil
}

// cpu returns the CPU time that processes have had, in user and system mode.
func cpu(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		tasks, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		for _, task := range tasks {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task.Name()))
			ns, _, _ := strings.Cut(string(text), " ")
			n, _ := strconv.ParseInt(ns, 10, 64)
			sum += time.Duration(n)
		}
	}
	return sum
}

// rss returns the memory that processes have, in bytes.
func rss(pids []int) (sum int64) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if f := strings.Fields(string(text)); len(f) > 1 {
			pages, _ := strconv.ParseInt(f[1], 10, 64)
			sum += pages * int64(os.Getpagesize())
		}
	}
	return sum
}
