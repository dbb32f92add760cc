package main

import (
	"strings"
	"time"

	"github.com/loopwheel/loopwheel/codec/resp"
	"github.com/loopwheel/loopwheel/demos/kv/store"
	"github.com/loopwheel/loopwheel/handler"
	"github.com/loopwheel/loopwheel/loop"
)

// maxBacklog is how many bytes of commands a client may send while one that it sent before waits.
const maxBacklog = 1 << 20

// resumeBatch is how many of them are run before others have their turn.
const resumeBatch = 256

// A session is one client. Its fields need no lock: only the connection's loop touches them.
type session struct {
	server   *server
	shard    *shard // of the connection's loop
	conn     *loop.Conn
	requests *resp.Requests
	answers  *handler.Replies
	version  resp.Version
	authed   bool
	opened   time.Time
	name     string
	last     string // the last command
	lastName string // the last one on keys, as it was written
	lastData *store.Command

	multi   *transaction
	capture *[]byte // where answers go while EXEC runs
	watch   *watching
	subs    subscriptions
	waiting *blocked   // a command that waits: nothing else is run meanwhile
	backlog [][][]byte // what was sent meanwhile
	held    int        // bytes of that
	full    bool       // and it was too much: the connection is not read
	closing bool       // QUIT
	quiet   uint8      // CLIENT REPLY
	running bool       // the backlog is being run
	silence loop.Timer // see watchSilence
}

// OnMessage gets a request. Its arguments are the codec's view of it.
func (s *session) OnMessage(*loop.Conn, []byte) error {
	args := s.requests.Args()
	if s.waiting != nil || len(s.backlog) > 0 {
		s.keep(args)
		return nil
	}
	s.execute(args)
	return nil
}

// keep copies a request that has to wait for the one before it.
func (s *session) keep(args [][]byte) {
	s.backlog = append(s.backlog, cloneArgs(args))
	for _, a := range args {
		s.held += len(a) + 32
	}
	if s.held > maxBacklog && !s.full {
		s.full = true
		s.conn.PauseRead()
	}
}

// cloneArgs copies arguments into one piece of memory.
func cloneArgs(args [][]byte) [][]byte {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	room, out := make([]byte, 0, n), make([][]byte, len(args))
	for i, a := range args {
		from := len(room)
		room = append(room, a...)
		out[i] = room[from:len(room):len(room)]
	}
	return out
}

// resume runs what was kept, until one of that has to wait, too, or the answers must be read first,
// or others have waited long enough.
func (s *session) resume() {
	if s.running {
		return
	}
	s.running = true
	for n := 0; len(s.backlog) > 0 && s.waiting == nil && !s.closing && !s.mustFlush(); n++ {
		if n == resumeBatch {
			_ = s.conn.Ref().Tell(func(*loop.Conn) { s.resume() })
			break
		}
		args := s.backlog[0]
		s.backlog[0] = nil
		s.backlog = s.backlog[1:]
		s.execute(args)
	}
	s.running = false
	if len(s.backlog) > 0 {
		return
	}
	s.backlog, s.held = nil, 0
	if s.full {
		s.full = false
		s.conn.ResumeRead()
	}
}

// mustFlush reports whether so many answers wait for the client that no more of its commands may be
// run: what Server.HoldBackAt does for those that were not kept. It goes on when they are sent.
func (s *session) mustFlush() bool {
	if s.conn.Pending() <= highWater {
		return false
	}
	s.conn.OnFlushed(func() {
		s.conn.OnFlushed(nil)
		s.resume()
	})
	return true
}

// OnClose forgets the client.
func (s *session) OnClose(c *loop.Conn, err error) {
	if s.waiting != nil {
		s.waiting.cancel()
	}
	s.unwatch()
	s.shard.pubsub.forget(s)
	delete(s.shard.sessions, c.ID())
	s.server.clients.Add(-1)
	if e := s.conn.Log().Debug(); e.Enabled() {
		e.Err(err).Msg("closed")
	}
}

// execute runs one request.
func (s *session) execute(args [][]byte) {
	if s.quiet > replyOff {
		s.quiet = (s.quiet + 1) % (replySkip + 1) // SkipNext, Skip, On
	}
	if s.lastData != nil && string(args[0]) == s.lastName { // most clients repeat themselves
		s.data(s.lastData, args)
		return
	}
	if cmd := store.Lookup(args[0]); cmd != nil {
		s.lastName, s.lastData = string(args[0]), cmd
		s.data(cmd, args)
		return
	}
	cmd := lookup(args[0])
	if cmd == nil {
		s.refuse(unknown(args))
		return
	}
	if cmd.subs != nil && len(args) > 1 {
		if cmd = cmd.sub(args[1]); cmd == nil {
			s.refuse(store.WrongSubcommand(args))
			return
		}
	}
	s.last = cmd.name
	switch n := len(args); {
	case cmd.arity > 0 && n != cmd.arity || n < -cmd.arity:
		s.reject(cmd, store.WrongArgs(cmd.name))
	case !cmd.open && !s.mayAct():
		s.reject(cmd, "NOAUTH Authentication required.")
	case s.subs.only(s) && !cmd.subscribed:
		s.reject(cmd, onlySubscriber(cmd.name))
	case s.multi != nil && !cmd.atOnce && s.server.overMemory():
		s.refuse(errOOM)
	case s.multi != nil && cmd.never:
		s.refuse("ERR Command not allowed inside a transaction")
	case s.multi != nil && !cmd.atOnce:
		s.queue(nil, cmd, args)
	default:
		cmd.run(s, args)
	}
}

// reject refuses a command that must not be run. EXEC ends the transaction even so.
func (s *session) reject(cmd *command, err string) {
	if cmd.name != "exec" {
		s.refuse(err)
		return
	}
	s.multi = nil
	s.unwatch()
	s.abort(strings.TrimPrefix(err, "ERR "))
}

// wrongSyntax is the error for too many arguments of a subcommand that may have several.
func wrongSyntax(args [][]byte) string {
	return "ERR unknown subcommand or wrong number of arguments for '" + store.Shown(args[1]) + "'. Try " + strings.ToUpper(string(args[0])) + " HELP."
}

// unknown is the error for a command that does not exist.
func unknown(args [][]byte) string {
	var b strings.Builder
	b.WriteString("ERR unknown command '" + store.Shown(args[0]) + "', with args beginning with: ")
	room := 128
	for _, a := range args[1:] {
		if room <= 0 {
			break
		}
		shown := "'" + store.Shown(a[:min(len(a), room)]) + "' "
		b.WriteString(shown)
		room -= len(shown)
	}
	return b.String()
}

func onlySubscriber(name string) string {
	return "ERR Can't execute '" + strings.ToLower(name) + "': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
}

// refuse answers an error. In a transaction that is being queued, the whole is refused.
func (s *session) refuse(err string) {
	if s.multi != nil {
		s.multi.failed = true
	}
	s.write(resp.AppendError(nil, err))
}

// write answers.
func (s *session) write(p []byte) {
	if s.capture != nil {
		*s.capture = append(*s.capture, p...)
		return
	}
	if s.quiet == replyOn {
		_ = s.answers.Write(p)
	}
}

func (s *session) ok() { s.write([]byte("+OK\r\n")) }

// data runs a command on keys: at once if they are on this loop, else where they are.
func (s *session) data(cmd *store.Command, args [][]byte) {
	s.last = cmd.Name
	if err := s.refuseData(cmd, args); err != "" {
		s.refuse(err)
		return
	}
	if s.multi != nil {
		s.queue(cmd, nil, args)
		return
	}
	sh, err := s.server.route(cmd, args)
	switch {
	case err != "":
		s.refuse(err)
	case sh == nil:
		s.everywhere(cmd, args)
	case sh == s.shard:
		s.here(cmd, args)
	default:
		s.there(sh, cmd, args)
	}
}

const errOOM = "OOM command not allowed when used memory > 'maxmemory'."

// refuseData returns why a command must not be run, "" if it may.
func (s *session) refuseData(cmd *store.Command, args [][]byte) string {
	switch {
	case !cmd.ArityOK(len(args)):
		return store.WrongArgs(cmd.Name)
	case cmd.Check != nil && cmd.Check(args) != "":
		return cmd.Check(args)
	case !s.mayAct():
		return "NOAUTH Authentication required."
	case s.subs.only(s):
		return onlySubscriber(cmd.Name)
	case (cmd.Flags&store.DenyOOM != 0 || s.multi != nil) && s.server.overMemory(): // what is queued takes memory, too
		return errOOM
	case cmd.Flags&store.Write != 0:
		return s.server.writable()
	}
	return ""
}

// here runs a command on the keys of this loop.
func (s *session) here(cmd *store.Command, args [][]byte) {
	sh := s.shard
	reply, wait := sh.run(cmd, args, s.version, false)
	if wait != nil {
		s.block(sh, wait)
		return
	}
	s.reply(sh, reply, cmd.Flags&store.Write != 0)
}

// reply sends an answer of a shard on this loop, once what it tells of is safe.
func (s *session) reply(sh *shard, reply []byte, wrote bool) {
	if j := sh.journal; j != nil && j.mustWait() && s.quiet == replyOn {
		sh.whenSafe(reply, wrote, s.answers.Later().Done)
		return
	}
	s.write(reply)
}

// run runs a command on the shard's loop. The reply is valid until the next call. wait: it has to
// wait.
func (sh *shard) run(cmd *store.Command, args [][]byte, v resp.Version, noBlock bool) (reply []byte, wait *store.Wait) {
	x := &sh.call
	x.Args, x.V, x.NoBlock = args, v, noBlock
	x.Out = x.Out[:0]
	if cap(x.Out) > highWater {
		x.Out = nil
	}
	x.Run(cmd)
	return x.Out, x.Block
}
