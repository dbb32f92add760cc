package main

import (
	"bufio"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// mosquittoFlags returns the broker's flags for the arguments of mosquitto. An option that it does not
// know is an error.
func mosquittoFlags(args []string) ([]string, error) {
	flags := []string{"-loops", "1"}
	set := map[string]string{"max-alias": "10", "max-inflight": "20", "max-packet": fmt.Sprint(anyPacket), "max-session": fmt.Sprint(uint32(never))}
	port, conf, passwords, listeners := "1883", "", "", 0
	anonymous, said := true, false
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "-v":
		case "-p":
			i++
			port = args[i]
		case "-c":
			i++
			conf = args[i]
		default:
			return nil, fmt.Errorf("argument %s", args[i])
		}
	}
	if conf != "" {
		f, err := os.Open(conf)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			option, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), " ")
			switch option {
			case "", "sys_interval", "log_type", "max_queued_messages", "max_queued_bytes", "per_listener_settings", "max_connections", "max_inflight_bytes":
			case "port", "listener":
				port = value
				if listeners++; !said {
					anonymous = false
				}
			case "allow_anonymous":
				anonymous, said = value == "true", true
			case "password_file":
				passwords = value
			case "persistence":
			case "persistence_file":
				set["state"] = value
			case "max_inflight_messages":
				set["max-inflight"] = value
			case "max_packet_size":
				set["max-packet"] = value
			case "max_keepalive":
				set["max-keepalive"] = value
			default:
				return nil, fmt.Errorf("option %s", lines.Text())
			}
		}
	}
	if listeners > 1 {
		return nil, fmt.Errorf("%d listeners", listeners)
	}
	if !anonymous {
		users, err := usersOf(passwords)
		if err != nil {
			return nil, err
		}
		set["users"] = users
	}
	flags = append(flags, "-addr", "tcp://127.0.0.1:"+port)
	for name, value := range set {
		flags = append(flags, "-"+name, value)
	}
	return flags, nil
}

// usersOf translates a password file of mosquitto's to one of -users. All its passwords are "password".
func usersOf(file string) (string, error) {
	var users []byte
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		for line := range strings.Lines(string(text)) {
			name, secret, _ := strings.Cut(strings.TrimSpace(line), ":")
			if parts := strings.Split(secret, "$"); len(parts) == 4 { // $6$salt$hash
				salt, _ := base64.StdEncoding.DecodeString(parts[2])
				sum := sha512.Sum512(append([]byte("password"), salt...))
				if base64.StdEncoding.EncodeToString(sum[:]) != parts[3] {
					return "", fmt.Errorf("the password of %s is not known", name)
				}
				secret = "password"
			}
			users = fmt.Appendf(users, "%s:%s\n", name, secret)
		}
	}
	return file + ".users", os.WriteFile(file+".users", users, 0o600)
}

// ports returns how many ports a test wants as arguments: it takes exactly that many.
func ports(t *testing.T, test string) int {
	text, err := os.ReadFile(test)
	if err != nil {
		t.Fatal(err)
	}
	if _, after, ok := strings.Cut(string(text), "get_port("); ok && after[0] > '1' && after[0] <= '9' {
		return int(after[0] - '0')
	}
	return 1
}

// known is a line of testdata/mosquitto.txt: tests that are left out, or that are known to fail. The
// tests of mosquitto's msg_sequence_test.py are known by their name in it.
type known struct {
	word    string // left or fails
	pattern *regexp.Regexp
}

func knownTests(t *testing.T) (all []known) {
	text, err := os.ReadFile("testdata/mosquitto.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(line, " ")
		pattern, _, ok := strings.Cut(rest, " :: ")
		if word != "left" && word != "fails" {
			continue
		}
		if !ok {
			t.Fatalf("no reason in the line %s", line)
		}
		all = append(all, known{word, regexp.MustCompile("^(" + strings.TrimSpace(pattern) + ")$")})
	}
	return all
}

func is(all []known, word, name string) bool {
	return slices.ContainsFunc(all, func(k known) bool { return k.word == word && k.pattern.MatchString(name) })
}

// TestMosquittoSuite runs mosquitto's own tests of a broker, whose source is in the directory
// LOOPWHEEL_MOSQUITTO, on this one.
func TestMosquittoSuite(t *testing.T) {
	root := os.Getenv("LOOPWHEEL_MOSQUITTO")
	if root == "" {
		t.Skip("LOOPWHEEL_MOSQUITTO is not the directory of mosquitto's source")
	}
	tests, err := filepath.Glob(filepath.Join(root, "test/broker/*.py"))
	if err != nil || len(tests) == 0 {
		t.Fatalf("no tests in %s: %v", root, err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	broker := filepath.Join(root, "src/mosquitto")
	_ = os.MkdirAll(filepath.Dir(broker), 0o755)
	_ = os.Remove(broker)
	if err := os.Symlink(program, broker); err != nil {
		t.Fatal(err)
	}
	var passed, failed atomic.Int64
	all := knownTests(t)
	t.Cleanup(func() { t.Logf("%d tests pass, %d are known to fail", passed.Load(), failed.Load()) })
	verdict := func(t *testing.T, name string, ok bool, why string) {
		switch {
		case ok == is(all, "fails", name):
			t.Errorf("%s passes: %v, which is not what testdata/mosquitto.txt says\n%s", name, ok, why)
		case ok:
			passed.Add(1)
		default:
			failed.Add(1)
		}
	}
	for i, test := range tests {
		name := filepath.Base(test)
		if is(all, "left", name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), "timeout", "60", "python3", name)
			for n := range ports(t, test) {
				cmd.Args = append(cmd.Args, fmt.Sprint(20000+4*i+n))
			}
			cmd.Dir = filepath.Dir(test)
			if name == "msg_sequence_test.py" { // which has many tests, and no other port than its default
				cmd.Args = cmd.Args[:4]
				out, err := cmd.CombinedOutput()
				lines := regexp.MustCompile(`\x1b\[3([12])m(.*?)(?: failed: (.*))?\x1b`).FindAllStringSubmatch(string(out), -1)
				if len(lines) == 0 || !strings.Contains(string(out), " tests total") {
					t.Fatalf("%v\n%s", err, out)
				}
				for _, line := range lines {
					verdict(t, "sequence "+strings.TrimSpace(line[2]), line[1] == "2", line[3])
				}
				return
			}
			out, err := cmd.CombinedOutput()
			verdict(t, name, err == nil, string(out))
		})
	}
}
