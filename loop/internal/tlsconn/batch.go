package tlsconn

import "github.com/loopwheel/loopwheel/loop/internal/engine"

// copied is how long the last of several records may be that is copied to the others, which costs
// less than to write two pieces.
const copied = 4 << 10

// A batch is records that are written at once. crypto/tls hands over one at a time, in a buffer
// that it uses again for the next; so all but the last are copied.
type batch struct {
	waits  []byte  // records that have not been written
	chunks []chunk // of what plaintext the batch is
	left   int     // the plaintext of the record that comes next and of those behind it
	pieces [2][]byte

	stuck bool  // the socket did not take all: of waits it has
	taken int   // so many bytes, and it said
	err   error // this
}

func (b *batch) begin() {
	b.waits, b.chunks = b.waits[:0], b.chunks[:0]
	b.stuck, b.taken, b.err = false, 0, nil
}

// add takes a record, and writes it if it is the last. As it is longer than its plaintext, one that
// is a bit shorter than the batch may be taken for the last when a very small one follows. That
// costs a write, no more.
func (b *batch) add(sock engine.Socket, record []byte) {
	if b.left -= len(record); b.left > 0 || b.stuck {
		b.waits = append(b.waits, record...)
		return
	}
	var n int
	var err error
	whole := len(b.waits) + len(record)
	switch {
	case len(b.waits) == 0:
		n, err = sock.Write(record)
	case len(record) > copied:
		b.pieces = [2][]byte{b.waits, record}
		n, err = sock.Writev(b.pieces[:])
		clear(b.pieces[:])
	default:
		b.waits = append(b.waits, record...)
		record = nil
		n, err = sock.Write(b.waits)
	}
	if err == nil && n == whole {
		b.written()
		return
	}
	b.waits = append(b.waits, record...)
	b.stuck, b.taken, b.err = true, n, err
}

// written notes that the socket has taken all up to now. If more comes, chunks count from there.
func (b *batch) written() {
	b.waits = b.waits[:0]
	for i := range b.chunks {
		b.chunks[i].end = 0
	}
}
