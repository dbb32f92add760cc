// Package handover lets a new process take over the addresses, the connections, and the state of an
// old one. Peers do not notice a deployment. Each connection moves between two callbacks. It keeps
// undecoded input, unsent output, idle times, SetIdleTimeout, PauseRead, the TLVs of the PROXY
// protocol, the state of TLS 1.3, and the state of its codec and its handler.
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
// To restart, start the program once more. A handler that can move implements loop.Saver. In the
// new process Accept is called to make a new handler, and gets the state from Conn.Saved:
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
// The new handler must set timers and hooks again, and join its groups and registries again. What
// it sends or starts in Accept is held until this process owns the connection. If that does not
// happen, OnClose gets ErrNotTaken. Accept is also called for copies of some connections, in a
// rehearsal; their OnClose always gets ErrNotTaken. In the old process OnClose gets ErrMoved.
//
// # What stays
//
// These connections stay with the old process as if nothing had happened, and drain there when
// everything else has moved:
//
//   - connections whose TLS crypto/tls handles (TLS 1.2; see Server.Debug.CryptoTLS), or whose
//     StartTLS is not done
//   - connections that were dialed without Dialer.MoveAs, or over UDP
//   - connections without a name of Listener.AcceptFrom or Server.Adopt
//   - connections that Conn.NetConn has given to a goroutine
//   - connections whose handler has no Save, or whose codec has state but is no codec.Saver
//   - connections whose Save fails
//   - connections that have not received their PROXY header, are in a handshake, are busy
//     (Conn.SetBusy), or have jobs, calls or replies in progress, unless that ends within
//     Config.Patience
//   - connections of an event loop that is blocked by a callback; with a State nothing moves then
//   - connections that Accept refuses
//   - connections with more than 16 MiB of state and buffers, and the other ends of their Pipes
//   - connections of addresses that the new process lacks
//
// Report.Stayed counts them by reason. A UDP session that stays while its socket moves can still
// send.
//
// A limit never closes a connection that moves. MaxConns and MaxConnsPerIP count it, and refuse new
// connections.
//
// # Dialed connections, Pipes, UDP
//
// A dialed connection moves to a Dial with the same Dialer.MoveAs in the new process; its open
// function gets the connection, with Conn.Saved. The two ends of a Pipe move together, to one loop.
// Accept of the new process gets the first end. Then either Accept of the other end, or open of a
// Dial that the first Accept has called, must call Pipe again; otherwise both ends stay. Byte
// counts continue.
//
// A UDP socket moves last, with its sessions, and keeps its peers. The number of sockets remains
// the number of loops of the first process, whatever Server.NumLoops is.
//
// # Who owns a connection
//
// At every instant, exactly one process owns a connection. The two processes share a pipe. Before
// the old process sends a batch, whose connections it has frozen, it writes one byte into the pipe.
// The process that reads the byte owns the batch. The new process reads it when Accept has returned
// for each connection. The old process reads it if that takes longer than Config.Timeout, or if the
// new process has died. Batch 0 is the right to accept connections: until the new process has it,
// the old process is unchanged. So if either process dies, the connections that it owns are lost,
// as without a handover, but none in transit. A process that was stopped for a while continues
// where it was.
//
// The new process takes nothing before it reports that everything it needs has started, and that it
// has been sent copies of up to three connections of each kind, and has accepted at least one of
// each. Dialed connections and Pipes are not copied, nor are the keys of TLS. A kind is an address,
// TLS or not, a handler type, and a codec type. If the new process accepts none of a kind, ends, or
// is too slow, the old process goes on.
//
// With a Config.State everything moves at one instant: the right to accept, the state, and the
// connections.
//
// Both processes must run as the same user. Processes with version 1 of this package, which had no
// Open, are refused: restart those without a handover.
package handover
