// Package handover lets a new process take over from an old one: its addresses, its connections,
// and its state. Their peers notice nothing of a deployment. Each connection moves between two
// callbacks, with what was read and not decoded, what was sent and not written, idle times,
// SetIdleTimeout, PauseRead, the notes of the PROXY protocol, the state of TLS 1.3, the codec's
// state and the handler's.
//
// A program opens a Handover, starts everything else that it needs, and runs:
//
//	srv := &loop.Server{Addr: "tcp://:7000", Accept: accept, ...}
//	h, err := handover.Open(ctx, srv, handover.Config{Path: "/run/app/handover"})
//	...
//	defer h.Close()
//	err = h.ServeHTTP("metrics", "127.0.0.1:9090", metrics) // whatever can fail comes before Run
//	...
//	h.RestartOn(syscall.SIGHUP)
//	return h.Run(ctx) // until the next process has taken over and the rest has drained, or ctx ends
//
// To restart, start the program once more. A handler that can move is a loop.Saver. In the new
// process Accept is asked for a new one, and finds the state in Conn.Saved:
//
//	func (s *session) Save(*loop.Conn) ([]byte, error) { return json.Marshal(s.state) }
//
//	func accept(c *loop.Conn) loop.Handler {
//		s := &session{}
//		if state, moved := c.Saved(); moved && json.Unmarshal(state, &s.state) != nil {
//			return nil // it stays with the old process
//		}
//		return s
//	}
//
// The handler sets timers and hooks again, and enters groups and registries. What it sends or
// starts in Accept is held until the connection belongs to this process. If it does not come to
// that, OnClose gets ErrNotTaken; Accept is also asked for copies of some connections, in a
// rehearsal, for which that is so each time. In the old process OnClose gets ErrMoved.
//
// # What stays
//
// Connections with TLS 1.2, or before StartTLS is done, those that were dialed without
// Dialer.MoveAs or by UDP, connections of Listener.AcceptFrom and Server.Adopt without a name,
// handlers without Save, codecs with a state and no codec.Saver; connections whose Save fails, that
// are in a handshake or before a PROXY header, busy (Conn.SetBusy), or that have jobs, calls or
// replies under way, for as long as that is so, at most Config.Patience; what Accept refuses; those
// with more than 16 MiB of state and buffers, and the other ends of their Pipes; and connections of
// addresses that the new process lacks. They stay with the old process, as if nothing had happened,
// and drain there when all else has moved. Report.Stayed counts them by reason. A session of UDP
// that stays, while its socket moves, may still send.
//
// No limit closes a connection that moves: MaxConns and MaxConnsPerIP count it, and refuse
// newcomers.
//
// # Dialed connections, Pipes, UDP
//
// A connection that was dialed moves to a Dial with the same Dialer.MoveAs in the new process: open
// gets it, with Conn.Saved. The ends of a Pipe move together, to one loop. Accept of the new
// process gets the first, and Accept of the other, or open of a Dial that the first Accept has
// called, calls Pipe again: otherwise both stay. Counts of bytes go on.
//
// A socket of UDP moves last, with its sessions, and keeps its peers: there are as many sockets as
// the first process had loops, whatever UDPOptions say.
//
// # Who owns a connection
//
// At every instant one process does. Both share a pipe. Before the old one sends a batch, whose
// connections it has frozen, it puts one byte into that pipe: who has read the byte owns the batch.
// The new process reads it when Accept has returned for each connection. The old one reads it if
// that takes longer than Config.Timeout, or the new one has died. Batch 0 is the right to accept
// newcomers: until the new process has it, the old one is untouched. So the death of either process
// costs what it owned, as without a handover, and never what is on its way. One that was stopped
// for a while goes on where it was.
//
// The new process takes nothing before it says that everything it needs has started, and has
// accepted copies of three connections of each kind, of those that are plain and accepted: of an
// address, a type of handlers and a type of codecs. If it accepts none of a kind, or ends, or is
// too slow, the old one goes on.
//
// With a Config.State everything moves at one instant: the right to accept, the state, and the
// connections.
//
// Both must be of one user. Processes of version 1 of this package, before Open, are refused:
// restart those without a handover.
package handover
