//go:build linux

// Command mqtt measures brokers: demos/mqtt with one loop and with two, mosquitto, and mochi-mqtt. It
// fills the table MQTT of docs/performance.md:
//
//	go run ./mqtt                 # in bench
//	go run ./mqtt -quick
//
// Three loads: devices that publish and subscribe at a steady rate, one message for all of them, and
// bursts. All clients run in this process, whose CPU time does not count. It needs the program
// mosquitto.
package main

import (
	"flag"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"

	"github.com/loopwheel/loopwheel/bench/internal/measure"
)

type options struct {
	devices, rate, bursts int
	length                time.Duration
	dir                   string // of programs and files
}

func main() {
	measure.Begin("mqtt")
	var o options
	role := flag.Bool("mochi", false, "used by the program itself: be mochi-mqtt")
	flag.IntVar(&o.devices, "devices", 4000, "devices")
	flag.IntVar(&o.rate, "rate", 10_000, "messages per second that come in; each goes to two devices")
	flag.IntVar(&o.bursts, "bursts", 30, "bursts of 1,000 messages")
	flag.DurationVar(&o.length, "for", 5*time.Second, "length of the steady load")
	rounds := flag.Int("rounds", 5, "rounds of each")
	docs := flag.String("docs", "", measure.Docs)
	only := flag.String("only", "loopwheel,mosquitto,mochi,two loops", "these brokers, or epoll: one loop with EngineEpoll")
	quick := flag.Bool("quick", false, "one round of a second with 200 devices")
	flag.Parse()
	if *role {
		go measure.Obey(nil)
		log.Fatal(serveMochi())
	}
	if *quick {
		measure.Preset(flag.CommandLine, map[string]string{"devices": "200", "rate": "500", "bursts": "5", "rounds": "1", "for": "1s"})
	}
	var err error
	o.dir, err = os.MkdirTemp("", "mqtt")
	measure.Check(err)
	defer os.RemoveAll(o.dir)
	build := exec.Command("go", "build", "-C", "../demos", "-o", filepath.Join(o.dir, "broker"), "./mqtt")
	build.Stderr = os.Stderr
	measure.Check(build.Run())
	contenders := strings.Split(*only, ",")
	results := &measure.Results{Base: "mosquitto"}
	for round, name := range measure.Turns(*rounds, contenders) {
		measure.Progress("round %d of %d: %s", round+1, *rounds, name)
		if err := o.measure(name, results); err != nil {
			log.Fatalf("%s: %v", name, err)
		}
	}
	measure.Progress("")
	measure.Check(results.Show("brokers of MQTT", *docs))
}

// start starts a broker and returns its process and its address.
func (o *options) start(name string) (pid int, addr string, end func(), err error) {
	var p *measure.Process
	switch name {
	case "mosquitto":
		return o.startMosquitto()
	case "mochi":
		p, err = measure.Self(name, 0, "-mochi")
	default:
		flags := map[string][]string{"two loops": {"-loops", "2"}, "epoll": {"-loops", "1", "-engine", "epoll"}}[name]
		if flags == nil {
			flags = []string{"-loops", "1"}
		}
		p, err = measure.Start(name, exec.Command(filepath.Join(o.dir, "broker"), append(flags, "-addr", "tcp://127.0.0.1:0")...))
	}
	if err != nil {
		return 0, "", nil, err
	}
	return p.Pid(), strings.TrimPrefix(p.Addr, "listening on "), p.End, nil
}

func (o *options) startMosquitto() (pid int, addr string, end func(), err error) {
	if addr, err = measure.FreeAddr(); err != nil {
		return 0, "", nil, err
	}
	_, port, _ := net.SplitHostPort(addr)
	conf := filepath.Join(o.dir, "mosquitto.conf")
	text := fmt.Sprintf("listener %s 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 100\nmax_queued_messages 0\nlog_type error\nset_tcp_nodelay true\n", port)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return 0, "", nil, err
	}
	program, err := exec.LookPath("mosquitto")
	if err != nil {
		program = "/usr/sbin/mosquitto"
	}
	cmd := exec.Command(program, "-c", conf)
	if err := cmd.Start(); err != nil {
		return 0, "", nil, err
	}
	end = func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }
	for range 100 {
		var nc net.Conn
		if nc, err = net.Dial("tcp", addr); err == nil {
			_ = nc.Close()
			return cmd.Process.Pid, addr, end, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	end()
	return 0, "", nil, err
}

func serveMochi() error {
	ln, err := measure.Listen()
	if err != nil {
		return err
	}
	caps := mqtt.NewDefaultServerCapabilities()
	caps.MaximumInflight, caps.MaximumClientWritesPending = 1<<15, 1<<15
	s := mqtt.New(&mqtt.Options{Capabilities: caps, Logger: slog.New(slog.DiscardHandler)})
	if err := s.AddHook(new(auth.AllowHook), nil); err != nil {
		return err
	}
	if err := s.AddListener(listeners.NewNet("tcp", ln)); err != nil {
		return err
	}
	if err := s.Serve(); err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	select {}
}

// measure runs one broker once.
func (o *options) measure(name string, results *measure.Results) error {
	pid, addr, end, err := o.start(name)
	if err != nil {
		return err
	}
	defer end()
	c := &crowd{addr: addr}
	defer c.close()
	for i := range o.devices {
		// Each topic has two subscribers, besides that of all.
		if err := c.join(0, "all", fmt.Sprint("d/", (i+1)%o.devices), fmt.Sprint("d/", (i+2)%o.devices)); err != nil {
			return err
		}
	}
	us := func(used time.Duration, n int64) float64 { return float64(used) / 1e3 / float64(n) }
	run := func(what string, load func() (want int64, err error)) error {
		before, got := measure.CPU(pid), c.got.Load()
		want, err := load()
		if err != nil {
			return err
		}
		if err := c.wait(got + want); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		results.Add(what, name, us(measure.CPU(pid)-before, want))
		return nil
	}
	if _, err := c.steady(o.rate, time.Second); err != nil { // to warm up
		return err
	}
	time.Sleep(500 * time.Millisecond)
	if err := run("steady load: CPU per delivery, µs", func() (int64, error) { return c.steady(o.rate, o.length) }); err != nil {
		return err
	}
	results.Add("memory, MB", name, float64(measure.Resident(pid))/1e6)
	if err := run("one message for all: CPU per delivery, µs", func() (int64, error) { return c.all(20) }); err != nil {
		return err
	}
	for qos := range byte(2) {
		topic := fmt.Sprint("burst/", qos)
		if err := c.join(qos, topic); err != nil {
			return err
		}
		if err := run(fmt.Sprintf("bursts of QoS %d: CPU per message, µs", qos), func() (int64, error) { return c.bursts(o.bursts, topic, qos) }); err != nil {
			return err
		}
	}
	return nil
}
