package websocket

import (
	"crypto/rand"
	"encoding/binary"
	mathrand "math/rand/v2"
	"sync"

	"github.com/gobwas/ws"
)

// maskBit is set in the second byte of a frame that is masked, as all of a client's are.
const maskBit = 0x80

// maskers generate masking keys, which must be unpredictable: a page could have
// a browser send what a proxy takes for a request (RFC 6455 section 10.3). Each has a seed from the
// system, which is asked no more after that. They are shared by connections, since one is as large
// as two of those.
var maskers = sync.Pool{New: func() any {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // it never fails
	return mathrand.NewChaCha8(seed)
}}

// appendMasked appends a masking key and payload, masked by it.
func appendMasked(dst, payload []byte) []byte {
	var key [4]byte
	m := maskers.Get().(*mathrand.ChaCha8)
	binary.NativeEndian.PutUint32(key[:], uint32(m.Uint64()))
	maskers.Put(m)
	dst = append(append(dst, key[:]...), payload...)
	ws.Cipher(dst[len(dst)-len(payload):], key, 0)
	return dst
}
