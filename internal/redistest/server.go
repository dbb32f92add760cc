package redistest

import (
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/loopwheel/loopwheel/internal/testkit"
)

// Need skips the test unless LOOPWHEEL_SLOW is set and Redis is installed.
func Need(t testing.TB) {
	t.Helper()
	testkit.NeedSlow(t, "it starts redis-server")
	for _, program := range []string{server, cli} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (apt-get install redis-server redis-tools); CI has it", program)
		}
	}
}

// The programs, which LOOPWHEEL_REDIS names: redis or valkey. Empty means redis.
var (
	server = cmp.Or(os.Getenv("LOOPWHEEL_REDIS"), "redis") + "-server"
	cli    = cmp.Or(os.Getenv("LOOPWHEEL_REDIS"), "redis") + "-cli"
)

// A Server is a redis-server on a port of this machine. It is killed when the test ends.
type Server struct {
	Addr string
	Dir  string // its working directory

	t    testing.TB
	args []string
	env  []string
	cmd  *exec.Cmd
}

// Start starts a redis-server with these settings, and waits until it answers.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	Need(t)
	return start(t, nil, settings)
}

func start(t testing.TB, env, settings []string) *Server {
	t.Helper()
	s := &Server{Addr: testkit.FreeAddr(t), Dir: t.TempDir(), t: t, env: env}
	s.args = append([]string{
		"--port", s.Port(), "--bind", "127.0.0.1", "--dir", s.Dir, "--save", "", "--logfile", filepath.Join(s.Dir, "log"),
	}, settings...)
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// Port returns the port of Addr.
func (s *Server) Port() string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return port
}

// Start starts the server again after Kill, on the same port and in the same directory.
func (s *Server) Start() {
	s.t.Helper()
	s.cmd = exec.Command(server, s.args...)
	s.cmd.Env = append(os.Environ(), s.env...)
	Tie(s.cmd) // a stopped process would stay for ever
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr, MaxRetries: -1})
	defer c.Close()
	testkit.Eventually(s.t, "redis-server answers", func() bool { return c.Ping(context.Background()).Err() == nil })
}

// Kill ends the process as kill -9 does. Its files stay until the test ends.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// Signal sends a signal to the process.
func (s *Server) Signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Client returns a client with go-redis' timeouts.
func (s *Server) Client() *redis.Client { return s.ClientWith(redis.Options{}) }

// PatientClient returns a client that waits for as long as the machine stands still. Other clients
// send a command again whose answer is late.
func (s *Server) PatientClient() *redis.Client { return s.ClientWith(*Patient(s.Addr)) }

// Patient returns the options of such a client.
func Patient(addr string) *redis.Options {
	const long = testkit.Patience
	return &redis.Options{Addr: addr, ReadTimeout: long, WriteTimeout: long, DialTimeout: long}
}

// ClientWith returns a client with these options, but for the address.
func (s *Server) ClientWith(opt redis.Options) *redis.Client {
	opt.Addr = s.Addr
	c := redis.NewClient(&opt)
	s.t.Cleanup(func() { c.Close() })
	return c
}

// CLI runs redis-cli at the server and returns what it prints.
func (s *Server) CLI(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(cli, append([]string{"-p", s.Port()}, args...)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("redis-cli %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Info returns a field of a section of INFO.
func (s *Server) Info(section, field string) string {
	s.t.Helper()
	return Field(s.CLI("info", section), field)
}

// Field returns a field of what INFO answers, or "".
func Field(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
