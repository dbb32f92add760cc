package resp

import (
	"fmt"

	"github.com/loopwheel/loopwheel/codec"
)

// Defaults of Server's fields, which are redis-server's own.
const (
	DefaultMaxBulk    = 512 << 20 // Server.MaxBulk, bytes
	DefaultMaxArgs    = 1<<31 - 1 // Server.MaxArgs
	DefaultMaxInline  = 64 << 10  // Server.MaxInline, bytes
	DefaultMaxRequest = 1 << 30   // Server.MaxRequest, bytes
)

// argRoom is what is kept of an argument besides its bytes, in bytes: its span, its slice, and what
// growing takes.
const argRoom = 48

// Limits of a peer that has not said its password yet: see Requests.Unauthenticated.
const (
	unauthenticatedArgs = 10
	unauthenticatedBulk = 16 << 10
)

// A Server is the codec of a server's connections: it decodes requests, and AppendFrame takes
// replies. It is a codec.Stateful: the codec of each connection is a *Requests. It may be copied,
// and compared. The zero Server has the limits of redis-server.
type Server struct {
	// MaxBulk is the length of the longest argument, in bytes. 0 means DefaultMaxBulk, 512 MiB.
	MaxBulk int

	// MaxArgs is how many arguments a request may have, its name included. 0 means DefaultMaxArgs,
	// 2,147,483,647: then MaxRequest is what limits them. Memory grows with the arguments that
	// come, not with the number that was announced.
	MaxArgs int

	// MaxInline is the length of the longest inline request, in bytes, and of the line that says
	// how long something is. 0 means DefaultMaxInline, 64 KiB.
	MaxInline int

	// MaxRequest is the length of the longest request on the wire, in bytes, where each argument
	// beyond the 64th counts for 48 bytes more. 0 means DefaultMaxRequest, 1 GiB. The bytes of a
	// request, and where its arguments are, stay in memory until it is whole: one peer may cost
	// that much. Conn.Send takes replies of up to this length, too.
	MaxRequest int
}

// New returns the codec of one connection, a *Requests. Any goroutine may call it.
func (s Server) New() codec.Codec {
	return &Requests{limits: Server{
		MaxBulk:    or(s.MaxBulk, DefaultMaxBulk),
		MaxArgs:    or(s.MaxArgs, DefaultMaxArgs),
		MaxInline:  or(s.MaxInline, DefaultMaxInline),
		MaxRequest: or(s.MaxRequest, DefaultMaxRequest),
	}}
}

// Decode returns ErrNoConn.
func (s Server) Decode([]byte) (int, []byte, error) { return 0, nil, ErrNoConn }

// AppendFrame returns ErrNoConn.
func (s Server) AppendFrame(dst, _ []byte) ([]byte, error) { return dst, ErrNoConn }

// Validate implements codec.Validator.
func (s Server) Validate() error {
	return validate("Server", []field{
		{"MaxBulk", s.MaxBulk}, {"MaxArgs", s.MaxArgs},
		{"MaxInline", s.MaxInline}, {"MaxRequest", s.MaxRequest},
	})
}

type field struct {
	name  string
	value int
}

func validate(codecName string, fields []field) error {
	for _, f := range fields {
		if f.value < 0 {
			return fmt.Errorf("%w: resp.%s.%s %d is negative", codec.ErrConfig, codecName, f.name, f.value)
		}
	}
	return nil
}

func or(n, zero int) int {
	if n == 0 {
		return zero
	}
	return n
}

// Of returns the codec of a connection whose codec was given as a Server, or nil if it has another.
// It must be called on c's loop. It stays the same until the codec is changed, so a handler calls
// it once, in Accept.
func Of(c interface{ Codec() codec.Codec }) *Requests {
	r, _ := c.Codec().(*Requests)
	return r
}
