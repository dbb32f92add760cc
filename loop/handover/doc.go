// Package handover lets a new process take over the listeners and the plain connections of an old
// one, so that their peers notice nothing of a deployment. Each connection moves between two
// callbacks, with all that the old process knows of it: bytes that were read and not decoded,
// output that was not written, idle stamps, addresses and notes of the PROXY protocol, the codec's
// state and the handler's.
//
// A program calls Take in place of Server.Start, and Listen after it:
//
//	srv := &loop.Server{Addr: "tcp://:7000", Accept: accept, ...}
//	report, err := handover.Take(ctx, srv, handover.Config{Path: path}) // starts srv
//	...
//	_, err = handover.Listen(srv, handover.Config{Path: path}) // for the next process
//	...
//	err = srv.Wait() // returns when the next process has taken over, and the rest has drained
//
// To restart, start the program once more. A handler that can move is a loop.Saver. In the new
// process Accept is asked for a new one, and finds the state in Conn.Saved:
//
//	func (s *session) Save(*loop.Conn) ([]byte, error) { return json.Marshal(s.state) }
//
//	func accept(c *loop.Conn) loop.Handler {
//		s := &session{}
//		if state, moved := c.Saved(); moved {
//			if json.Unmarshal(state, &s.state) != nil {
//				return nil // closes it; Config.Check would leave it with the old process
//			}
//		}
//		return s
//	}
//
// The handler sets timers and hooks again, and enters groups and registries. Idle timeouts go on
// from where they were.
//
// # What does not move
//
// Connections with TLS, as their keys stay with crypto/tls; those that are dialled, or in a Pipe;
// sessions of UDP, and servers with UDP addresses as a whole; those with a job of Offload under
// way, SetBusy, or a Saver that returns an error, for as long as that is so; handlers that are no
// Saver; codecs with state that are no codec.Saver. They stay with the old process, and drain
// there. The codecs of package codec and a server's of codec/websocket can move.
//
// # Who owns a connection
//
// At every instant one process does. The old one sends connections in batches and keeps a copy of
// each, the new one confirms a batch, and serves it when the old one has said that it lets go. If
// the new process ends before it has confirmed, the old one goes on with its copies; after that
// they are the new one's. If the old process dies in between, the new one knows that by a pipe that
// only the old one holds, and serves what it has confirmed or not. So the death of either process
// costs at most the batch that is on its way.
//
// Both must be of one user, and of one version of this protocol. Everything else leaves the old
// process as it was: a new one that does not start, is not allowed, or gives up.
package handover
