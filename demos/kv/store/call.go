package store

import (
	"cmp"
	"slices"
	"strings"

	"github.com/loopwheel/loopwheel/codec/resp"
)

// A Call is one command that is run on a DB. A Call may be used again.
type Call struct {
	DB   *DB
	Args [][]byte     // the command's name first; valid while it runs
	Out  []byte       // replies are appended here
	V    resp.Version // which they are written in

	// NoBlock: BLPOP and the like answer at once, because others wait for the end of this.
	NoBlock bool

	// Block is set by a command that has to wait: nothing was appended to Out then.
	Block *Wait

	changed bool
	logged  bool // by the command itself
}

// Flags of a Command.
const (
	Write    = 1 << iota // it may change keys
	DenyOOM              // it may need memory
	Blocking             // it may wait
	Random               // its answer is not determined
)

// A Command is an entry of the table.
type Command struct {
	Name  string
	Arity int // of arguments, the name included; -n means n at least
	Flags int

	// First, Last and Step say which arguments are keys: Last counts from the end if negative.
	// First 0: none, or Keys says it.
	First, Last, Step int
	Keys              func(args [][]byte) [][]byte

	// Check, if it is there, returns what is wrong with the arguments before anything is run or put
	// into a transaction, "" if nothing is.
	Check func(args [][]byte) string

	run func(x *Call)
}

var commands = make(map[string]*Command)

// register is called by the tables of commands.
func register(table []Command) bool {
	for i := range table {
		commands[table[i].Name] = &table[i]
	}
	return true
}

// Lookup returns the command of a name in any case, nil if there is none.
func Lookup(name []byte) *Command {
	var room [32]byte
	if len(name) > len(room) {
		return nil
	}
	lower := room[:len(name)]
	for i, b := range name {
		if b >= 'A' && b <= 'Z' {
			b += 'a' - 'A'
		}
		lower[i] = b
	}
	return commands[string(lower)]
}

// All calls f for each command, in no order.
func All(f func(*Command)) {
	for _, c := range commands {
		f(c)
	}
}

// ArityOK reports whether a command may have n arguments, its name included.
func (c *Command) ArityOK(n int) bool {
	return n == c.Arity || c.Arity < 0 && n >= -c.Arity
}

// AppendKeys appends the keys among args to keys. The number of args must be right.
func (c *Command) AppendKeys(keys, args [][]byte) [][]byte {
	if c.Keys != nil {
		return append(keys, c.Keys(args)...)
	}
	if c.First == 0 {
		return keys
	}
	last := c.Last
	if last < 0 {
		last += len(args)
	}
	for i := c.First; i <= last && i < len(args); i += c.Step {
		keys = append(keys, args[i])
	}
	return keys
}

// Run runs a command whose number of arguments is right.
func (x *Call) Run(c *Command) {
	db := x.DB
	db.begin()
	x.changed, x.logged, x.Block = false, false, nil
	c.run(x)
	if x.changed && !x.logged {
		db.log(x.Args...)
	}
	if len(db.ready) > 0 && db.batch == 0 {
		db.serve()
	}
}

// Begin starts a transaction: what runs until End happens at one time, and is logged as one.
func (db *DB) Begin(commands int) {
	db.begin()
	db.clock()
	db.frozen, db.batch, db.begun = true, max(2, commands), false
}

// End ends the transaction.
func (db *DB) End() {
	if db.begun && db.Log != nil {
		db.Log([][]byte{[]byte("EXEC")})
	}
	db.frozen, db.batch, db.begun = false, 0, false
	if len(db.ready) > 0 {
		db.serve()
	}
}

// did says that the command has changed a key, and what is to be told about it.
func (x *Call) did(class Event, event string, key []byte) {
	x.changed = true
	db := x.DB
	db.stats.Changes++
	if len(db.watched) > 0 {
		db.touch(string(key))
	}
	if db.Events&class != 0 {
		db.notify(class, event, string(key))
	}
}

// log writes something else to the log than the command as it came: something that does not depend
// on time, chance or who was waiting. It may be called several times, or with nothing: then nothing
// is logged.
func (x *Call) log(args ...[]byte) {
	x.logged = true
	if len(args) > 0 {
		x.DB.log(args...)
	}
}

func (x *Call) ok()                 { x.Out = append(x.Out, "+OK\r\n"...) }
func (x *Call) int(n int)           { x.Out = resp.AppendInt(x.Out, int64(n)) }
func (x *Call) int64(n int64)       { x.Out = resp.AppendInt(x.Out, n) }
func (x *Call) bulk(b []byte)       { x.Out = resp.AppendBulk(x.Out, b) }
func (x *Call) bulkString(s string) { x.Out = resp.AppendBulk(x.Out, s) }
func (x *Call) null()               { x.Out = x.V.AppendNull(x.Out) }
func (x *Call) nullArray()          { x.Out = x.V.AppendNullArray(x.Out) }
func (x *Call) array(n int)         { x.Out = resp.AppendArray(x.Out, n) }
func (x *Call) err(s string)        { x.Out = resp.AppendError(x.Out, s) }

// Errors in redis-server's words, by which clients know them.
const (
	errSyntax      = "ERR syntax error"
	errNotInt      = "ERR value is not an integer or out of range"
	errNotFloat    = "ERR value is not a valid float"
	errNoKey       = "ERR no such key"
	errIndex       = "ERR index out of range"
	errOverflow    = "ERR increment or decrement would overflow"
	errNaN         = "ERR increment would produce NaN or Infinity"
	errWrongType   = "WRONGTYPE Operation against a key holding the wrong kind of value"
	errTooLong     = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"
	errOutOfRange  = "ERR value is out of range"
	errNotWithin32 = "ERR value is out of range, value must between -2147483648 and 2147483647"
	errNotWithin64 = "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807"
	errNotPositive = "ERR value is out of range, must be positive"
)

// WrongArgs is the error for a wrong number of arguments.
func WrongArgs(name string) string {
	return "ERR wrong number of arguments for '" + strings.ToLower(name) + "' command"
}

// WrongSubcommand is the error for a subcommand that a command does not have, or for a wrong number
// of arguments if it is one of those that it has, which are in lower case.
func WrongSubcommand(args [][]byte, has ...string) string {
	name, sub := lower(args[0]), lower(args[1])
	if slices.Contains(has, sub) {
		return WrongArgs(name + "|" + sub)
	}
	return "ERR unknown subcommand '" + Shown(args[1]) + "'. Try " + strings.ToUpper(name) + " HELP."
}

// Shown is what an error shows of an argument: not all of a long one, and what is before a zero
// byte, where redis-server's texts end.
func Shown(arg []byte) string {
	return upToZero(arg[:min(len(arg), 128)])
}

func upToZero(arg []byte) string {
	text, _, _ := strings.Cut(string(arg), "\x00")
	return text
}

// parseInt parses an argument; false: an error was answered.
func (x *Call) parseInt(b []byte) (n int64, ok bool) {
	if n, ok = resp.ParseInt(b); !ok {
		x.err(errNotInt)
	}
	return n, ok
}

// is reports whether an argument is this word, which is in capitals, in any case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i := range arg {
		b := arg[i]
		if b >= 'a' && b <= 'z' {
			b -= 'a' - 'A'
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

// lookup returns the value of a key, the zero T if there is none; ok is false if it is another kind
// of value, which was answered.
func lookup[T any](x *Call, key []byte) (v *T, e *entry, ok bool) {
	if e = x.DB.get(key); e == nil {
		x.DB.stats.Misses++
		return nil, nil, true
	}
	x.DB.stats.Hits++
	if v, ok = e.val.(*T); !ok {
		x.err(errWrongType)
	}
	return v, e, ok
}

// held returns the value of a key for a command that has waited: nil if there is none, or it is of
// another kind, as that is no reason to stop waiting.
func held[T any](x *Call, key []byte) (v *T, e *entry) {
	if e = x.DB.get(key); e != nil {
		v, _ = e.val.(*T)
	}
	return v, e
}

// create is lookup that makes the key if it is not there.
func create[T any](x *Call, key []byte) (v *T, e *entry, ok bool) {
	if v, e, ok = lookup[T](x, key); e == nil {
		v = new(T)
		e = x.DB.put(key)
		e.val = v
		x.DB.notify(EventNew, "new", e.name)
	}
	return v, e, ok
}

// delIfEmpty removes a key whose last element has gone.
func (x *Call) delIfEmpty(e *entry, n int) {
	if n == 0 {
		x.DB.drop(e)
		x.did(EventGeneric, "del", []byte(e.name))
	}
}

// popCount returns how many elements LPOP, SPOP, ZPOPMIN and the like are to take, and whether that
// was said, so that an array is the answer. false: the error is the answer; for more arguments than
// that it is tooMany, or if that is empty, what it is for other commands.
func (x *Call) popCount(tooMany string) (n int64, many, ok bool) {
	switch {
	case len(x.Args) > 3:
		x.err(cmp.Or(tooMany, WrongArgs(string(x.Args[0]))))
		return 0, false, false
	case len(x.Args) == 2:
		return 1, false, true
	}
	if n, ok = resp.ParseInt(x.Args[2]); !ok || n < 0 {
		x.err(errNotPositive)
		return 0, false, false
	}
	return n, true, true
}
