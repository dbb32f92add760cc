// Package handover lets a new process take over from an old one: its addresses, its connections and
// its state. Peers do not notice a deployment. Each connection moves between two callbacks, with
// input that was read but not decoded, output that was not written, idle times, SetIdleTimeout,
// PauseRead, the TLVs of the PROXY protocol, the state of TLS 1.3, and the state of its codec and
// handler.
//
// A program opens a Handover, starts everything else that it needs, and calls Run:
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
// To restart, start the program again. A handler that can move is a loop.Saver. The new process
// calls Accept for a new handler, which finds the state in Conn.Saved:
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
// Accept sets timers and hooks again, and joins groups and registries. What it sends or starts is
// held until the connection belongs to this process. If the connection does not move after all,
// OnClose gets ErrNotTaken. Accept is also called for copies of some connections, in a rehearsal,
// which always ends that way. In the old process OnClose gets ErrMoved.
//
// # What stays
//
// The following connections stay with the old process, as if nothing had happened, and drain there
// when everything else has moved:
//
//   - those with TLS 1.2, those dialed without Dialer.MoveAs or by UDP, and those of Listener.AcceptFrom and Server.Adopt without a name
//   - those whose handler has no Save, or whose codec has state but is no codec.Saver
//   - those whose Save fails, that are in a TLS handshake or before a PROXY header, that are busy (Conn.SetBusy), or that have pending jobs, calls or replies, if that lasts longer than Config.Patience
//   - those that Accept refuses
//   - those with more than 16 MiB of state and buffers, and the other ends of their Pipes
//   - those of addresses that the new process lacks
//
// Report.Stayed counts them by reason. A UDP session that stays, while its socket moves, may still
// send.
//
// No limit closes a connection that moves: MaxConns and MaxConnsPerIP count it, and refuse new
// ones.
//
// # Dialed connections, Pipes, UDP
//
// A dialed connection moves to a Dial with the same Dialer.MoveAs in the new process: its open
// function gets it, with Conn.Saved. The ends of a Pipe move together, to one loop. Accept of the
// new process gets the first end. Accept of the other end, or the open function of a Dial that the
// first Accept has called, calls Pipe again: otherwise both stay. Byte counts continue.
//
// A UDP socket moves last, with its sessions, and keeps its peers: there are as many sockets as the
// first process had loops, regardless of UDPOptions.
//
// # Who owns a connection
//
// At every instant exactly one process owns a connection. Both processes share a pipe. Before the
// old one sends a batch, whose connections it has frozen, it writes one byte to that pipe: the
// process that reads the byte owns the batch. The new process reads it when Accept has returned for
// each connection. The old one reads it if that takes longer than Config.Timeout, or if the new one
// has died. Batch 0 is the right to accept new connections: until the new process has it, the old
// one is unchanged. So if either process dies, only its own connections are lost, as without a
// handover, and never one that is being moved. A process that was stopped for a while continues
// where it was.
//
// The new process takes nothing before it has reported that everything it needs has started, and
// has accepted copies of three connections of each kind among the plain, accepted ones; a kind is
// an address, a handler type and a codec type. If it accepts none of a kind, or ends, or is too
// slow, the old one continues.
//
// With a Config.State everything moves at one instant: the right to accept, the state, and the
// connections.
//
// Both processes must run as the same user. Processes with version 1 of this package, before Open,
// are refused: restart those without a handover.
package handover
