package store

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/loopwheel/loopwheel/internal/seed"
)

// TestModel runs random commands on the store and on a model in plain structures, and wants the
// same answers. What the store logs is run on another store, which must be the same in the end, as
// must one that is made of a dump.
func TestModel(t *testing.T) {
	var followed DB
	follower := &Call{DB: &followed, NoBlock: true}
	follow := func(args [][]byte) {
		cmd := Lookup(args[0])
		if cmd == nil || cmd.Flags&Write == 0 || !cmd.ArityOK(len(args)) {
			t.Fatalf("this was logged: %q", args)
		}
		follower.Args, follower.Out = args, follower.Out[:0]
		follower.Run(cmd)
	}
	x := &Call{DB: &DB{Log: follow}}
	m := make(model)
	r := rand.New(rand.NewPCG(seed.Pick(t, 1), 1))
	for step := range 50_000 {
		args := random(r)
		if got, want := x.do(args...), m.run(args); got != want {
			t.Fatalf("step %d: %q answers %s, the model %s", step, args, got, want)
		}
		if n := x.DB.Stats().Keys; n != len(m) {
			t.Fatalf("step %d: after %q there are %d keys, in the model %d", step, args, n, len(m))
		}
	}
	var dumped DB
	loader := &Call{DB: &dumped, NoBlock: true}
	err := x.DB.Dump(func(args ...[]byte) error {
		loader.Args, loader.Out = args, loader.Out[:0]
		loader.Run(Lookup(args[0]))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, db := range map[string]*DB{"the store": x.DB, "what follows its log": &followed, "its dump": &dumped} {
		sameAsModel(t, name, db, m)
	}
}

func sameAsModel(t *testing.T, name string, db *DB, m model) {
	t.Helper()
	x := &Call{DB: db}
	if n := db.Stats().Keys; n != len(m) {
		t.Errorf("%s: %d keys, want %d", name, n, len(m))
	}
	for key, v := range m {
		var commands [][]string
		switch v := v.(type) {
		case string:
			commands = append(commands, []string{"GET", key})
		case []string:
			commands = append(commands, []string{"LRANGE", key, "0", "-1"})
		case map[string]string:
			commands = append(commands, []string{"HLEN", key})
			for f := range v {
				commands = append(commands, []string{"HGET", key, f})
			}
		case map[string]bool:
			commands = append(commands, []string{"SUNION", key, key})
		case map[string]float64:
			commands = append(commands, []string{"ZRANGE", key, "0", "-1"})
		}
		for _, args := range commands {
			if got, want := x.do(args...), m.run(args); got != want {
				t.Errorf("%s: %q answers %s, want %s", name, args, got, want)
			}
		}
	}
}

// A transaction is one in the log; what fails or changes nothing is not there.
func TestLogOfTransactions(t *testing.T) {
	var log []string
	db := &DB{Log: func(args [][]byte) { log = append(log, string(bytes.Join(args, []byte(" ")))) }}
	x := &Call{DB: db}
	db.Begin(3)
	x.do("SET", "a", "1")
	x.do("LPUSH", "a", "x")
	x.do("INCR", "a")
	db.End()
	db.Begin(2)
	x.do("GET", "a")
	x.do("DEL", "nothing")
	db.End()
	x.do("SET", "b", "2")
	want := []string{"MULTI", "SET a 1", "INCR a", "EXEC", "SET b 2"}
	if !slices.Equal(log, want) {
		t.Errorf("%q, want %q", log, want)
	}
}

// What depends on time or chance is logged as what it did.
func TestLogIsDetermined(t *testing.T) {
	var log []string
	db := &DB{Now: func() int64 { return 1_000_000 }, Log: func(args [][]byte) {
		log = append(log, string(bytes.Join(args, []byte(" "))))
	}}
	x := &Call{DB: db}
	for _, line := range []string{"SET a v EX 10", "EXPIRE a 20", "GETEX a PX 5", "INCRBYFLOAT f 0.5", "SADD s one", "SPOP s"} {
		if got := x.do(strings.Fields(line)...); strings.HasPrefix(got, "(error)") {
			t.Fatal(line, got)
		}
	}
	want := []string{"SET a v PXAT 1010000", "PEXPIREAT a 1020000", "PEXPIREAT a 1000005"}
	if !slices.Equal(log[:3], want) {
		t.Errorf("%q, want %q", log[:3], want)
	}
	for _, line := range log[3:] {
		if strings.HasPrefix(line, "INCRBYFLOAT") || strings.HasPrefix(line, "SPOP") {
			t.Errorf("%q was logged", line)
		}
	}
}

// WATCH notices what changes a key, a flush included, and nothing else.
func TestWatch(t *testing.T) {
	for line, touched := range map[string]bool{
		"SET a 2": true, "DEL a": true, "RENAME b a": true, "APPEND a x": true, "FLUSHALL": true, "PEXPIRE a 100000": true,
		"GET a": false, "SET b 3": false, "DEL nothing": false, "LPUSH a x": false, "SETNX a 1": false,
	} {
		x := &Call{DB: new(DB)}
		x.do("SET", "a", "1")
		x.do("SET", "b", "2")
		w, other := new(Watch), new(Watch)
		x.DB.Watch(w, []byte("a"))
		x.DB.Watch(other, []byte("nothing"))
		x.do(strings.Fields(line)...)
		if w.Touched != touched || other.Touched {
			t.Errorf("%s: touched %v, %v; want %v, false", line, w.Touched, other.Touched, touched)
		}
		x.DB.Unwatch(w)
		x.DB.Unwatch(other)
		if len(x.DB.watched) != 0 {
			t.Errorf("%s: somebody still watches", line)
		}
	}
}

// Move shares the keys out, with their values and times.
func TestMove(t *testing.T) {
	x := &Call{DB: new(DB)}
	for _, line := range []string{"SET a 1", "RPUSH b x y", "SET c 3 PXAT 99999999999999"} {
		x.do(strings.Fields(line)...)
	}
	others := map[string]*DB{"a": x.DB, "b": new(DB), "c": new(DB)}
	x.DB.Move(func(key string) *DB { return others[key] })
	for key, want := range map[string]string{"a": "1", "b": "[x y]", "c": "99999999999999"} {
		y := &Call{DB: others[key]}
		got := map[string]func() string{
			"a": func() string { return y.do("GET", "a") },
			"b": func() string { return y.do("LRANGE", "b", "0", "-1") },
			"c": func() string { return y.do("PEXPIRETIME", "c") },
		}[key]()
		if got != want || y.DB.Stats().Keys != 1 {
			t.Errorf("%s: %s, want %s; %d keys", key, got, want, y.DB.Stats().Keys)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "anything", true}, {"a?c", "abc", true}, {"a?c", "ac", false}, {"a*c*e", "abcde", true},
		{"[abc]x", "bx", true}, {"[^abc]x", "bx", false}, {"[a-c]x", "bx", true}, {"[c-a]x", "bx", true}, {`\*`, "*", true},
		{`\*`, "x", false}, {"[a", "a", true}, {"", "", true}, {"", "x", false}, {"**b", "aab", true}, {"h[^e]llo", "hello", false},
	} {
		if got := Match([]byte(tt.pattern), []byte(tt.text)); got != tt.want {
			t.Errorf("Match(%q, %q) is %v", tt.pattern, tt.text, got)
		}
	}
}

func TestEvents(t *testing.T) {
	for in, want := range map[string]string{"": "", "KEA": "AKE", "Ex": "xE", "g$lshzxetd": "A", "Kn": "Kn"} {
		e, ok := ParseEvents(in)
		if again, _ := ParseEvents(e.String()); !ok || again != e || e.String() != want {
			t.Errorf("%q is %q, %v", in, e.String(), ok)
		}
	}
	if _, ok := ParseEvents("Q"); ok {
		t.Error("Q is a class")
	}
	var told []string
	db := &DB{Events: EventKeyevent | EventAll, Notify: func(_ Event, event, key string) { told = append(told, event+" "+key) }}
	x := &Call{DB: db}
	for _, line := range []string{"SET a 1", "GET a", "EXPIRE a 100", "LPUSH l x", "LPOP l", "RENAME a b"} {
		x.do(strings.Fields(line)...)
	}
	want := []string{"set a", "expire a", "lpush l", "lpop l", "del l", "rename_from a", "rename_to b"}
	if !slices.Equal(told, want) {
		t.Errorf("%q, want %q", told, want)
	}
}

// Every command says which arguments are its keys, as the number of shards and the log rely on it.
func TestCommandTable(t *testing.T) {
	names := make(map[string]bool)
	All(func(c *Command) {
		names[c.Name] = true
		if c.run == nil || c.Arity == 0 || c.First > 0 && c.Step < 1 || strings.ToLower(c.Name) != c.Name {
			t.Errorf("%+v", c)
		}
	})
	for _, line := range []string{"GET a:a", "MSET a 1 b 2:a b", "BLPOP a b 0:a b", "ZUNION 2 a b:a b", "BLMPOP 0 2 a b LEFT:a b", "RENAME a b:a b"} {
		command, keys, _ := strings.Cut(line, ":")
		var args [][]byte
		for _, w := range strings.Fields(command) {
			args = append(args, []byte(w))
		}
		if got := string(bytes.Join(Lookup(args[0]).AppendKeys(nil, args), []byte(" "))); got != keys {
			t.Errorf("the keys of %s are %q", command, got)
		}
	}
	if len(names) < 100 {
		t.Errorf("%d commands: %q", len(names), slices.Sorted(maps.Keys(names)))
	}
}
