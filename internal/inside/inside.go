// Package inside is what package loop does for other packages of this module, and not for users: it
// sets these variables. A conn is a *loop.Conn, whose loop must make the call.
package inside

var (
	// Hold has conn not be read from now on, or read again. It is apart from PauseRead, which the
	// user may end meanwhile. Like that, it does not count how often it was called.
	Hold func(conn any, on bool)

	// Room reports whether more should be sent to conn: no more than half of MaxOutbound waits. If
	// not, f is called once when that is so, in a turn of its own, unless conn closes before.
	Room func(conn any, f func()) bool

	// Post is Post of l, a *loop.Loop, and numbers what is put into its mailbox: what is behind number
	// n has n+1. Any goroutine may call it.
	Post func(l any, f func()) (number uint64, err error)

	// Unfinished says, within what Post was given, that it has more to do: it is called again, before
	// what is behind it in the mailbox, when l has written what was sent and, if TurnBudget is
	// spent, has looked at its sockets and timers.
	Unfinished func(l any)

	// MayWrite returns why Conn.Write would take nothing now, if so: conn closes, its output has
	// ended, or MaxOutbound of it wait, after trying the socket, for which conn then closes as by
	// Write. It appends nothing, and runs no hook of the user.
	MayWrite func(conn any) error

	// Mute returns loop.ErrClosed if Conn.Write will take nothing ever again: conn closes, or its
	// output has ended.
	Mute func(conn any) error

	// Socket returns the engine.Socket below conn, that of a layer of TLS below this: while it is
	// open.
	Socket func(conn any) any

	// MayLog reports whether a line may be written about a message that could not be sent, which
	// peers may be able to cause: for all connections of a server together one passes each second.
	// more is how many have not since the last one.
	MayLog func(conn any) (more int, ok bool)

	// CheckDial returns what is wrong with a loop.Dialer or an address, whatever the network is
	// like, or nil. Any goroutine may call it.
	CheckDial func(dialer any, addr string) error

	// Draining reports whether a *loop.Loop, which must make the call, dials no more: its server
	// drains, or it has ended.
	Draining func(l any) bool
)
