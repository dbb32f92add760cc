package tlsrecord

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"encoding/binary"

	"golang.org/x/crypto/chacha20poly1305"
)

// A suite is a cipher suite of TLS 1.3 (RFC 8446, appendix B.4).
type suite struct {
	id       uint16
	keySize  int
	hashSize int
	aead     func(key []byte) (cipher.AEAD, error)
	limit    uint64 // records under one key
}

// suites have the limits of RFC 8446, section 5.5: 2^24.5 full records of AES-GCM. With
// ChaCha20-Poly1305 the sequence number would wrap first.
var suites = map[uint16]*suite{
	tls.TLS_AES_128_GCM_SHA256:       {tls.TLS_AES_128_GCM_SHA256, 16, sha256.Size, aesGCM, 1 << 24},
	tls.TLS_AES_256_GCM_SHA384:       {tls.TLS_AES_256_GCM_SHA384, 32, sha512.Size384, aesGCM, 1 << 24},
	tls.TLS_CHACHA20_POLY1305_SHA256: {tls.TLS_CHACHA20_POLY1305_SHA256, 32, sha256.Size, chacha20poly1305.New, 1<<64 - 1},
}

func aesGCM(key []byte) (cipher.AEAD, error) {
	b, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(b)
}

// A half is one direction: the protection of its records by one key after the other.
type half struct {
	aead   cipher.AEAD // nil after a rest: AES-GCM's takes 768 bytes
	seq    uint64
	secret [sha512.Size384]byte // application_traffic_secret_N, the first hashSize bytes of it
	iv     [12]byte
}

// set begins to use a secret (RFC 8446, section 7.3).
func (h *half) set(s *suite, secret []byte) {
	copy(h.secret[:], secret)
	s.expand(h.secret[:s.hashSize], "iv", h.iv[:])
	h.seq = 0
	h.wake(s)
}

// wake makes the AEAD of the secret.
func (h *half) wake(s *suite) {
	var key [32]byte
	s.expand(h.secret[:s.hashSize], "key", key[:s.keySize])
	var err error
	if h.aead, err = s.aead(key[:s.keySize]); err != nil {
		panic(err) // the key has the size that it must have
	}
	clear(key[:])
}

// update goes on to the next secret (RFC 8446, section 7.2).
func (h *half) update(s *suite) {
	var next [sha512.Size384]byte
	s.expand(h.secret[:s.hashSize], "traffic upd", next[:s.hashSize])
	h.set(s, next[:s.hashSize])
	clear(next[:])
}

// expand is HKDF-Expand-Label without a context (RFC 8446, section 7.1), for at most one hash of
// output: HMAC of the label and the byte 1 (RFC 5869, section 2.3; RFC 2104). crypto/hkdf allocates
// for it, and each connection needs it four times.
func (s *suite) expand(secret []byte, label string, out []byte) {
	var inner, outer [sha512.BlockSize + sha512.Size384]byte
	block := sha256.BlockSize
	if s.hashSize == sha512.Size384 {
		block = sha512.BlockSize
	}
	copy(inner[:], secret)
	copy(outer[:], secret)
	for i := range block {
		inner[i] ^= 0x36
		outer[i] ^= 0x5c
	}
	b := binary.BigEndian.AppendUint16(inner[:block], uint16(len(out)))
	b = append(b, byte(len("tls13 ")+len(label)))
	b = append(b, "tls13 "...)
	b = append(b, label...)
	b = append(b, 0, 1)
	sum := s.sum(b)
	sum = s.sum(append(outer[:block], sum[:s.hashSize]...))
	copy(out, sum[:s.hashSize])
	clear(inner[:])
	clear(outer[:])
	clear(sum[:])
}

// sum returns a hash, in its first hashSize bytes.
func (s *suite) sum(b []byte) (sum [sha512.Size384]byte) {
	if s.hashSize == sha512.Size384 {
		return sha512.Sum384(b)
	}
	h := sha256.Sum256(b)
	copy(sum[:], h[:])
	return sum
}

// open appends the TLSInnerPlaintext of a record to dst (RFC 8446, section 5.2).
func (h *half) open(s *suite, dst, record []byte) ([]byte, error) {
	if h.aead == nil {
		h.wake(s)
	}
	h.mask()
	inner, err := h.aead.Open(dst, h.iv[:], record[headerSize:], record[:headerSize])
	h.mask()
	if err == nil {
		h.seq++
	}
	return inner, err
}

// seal appends a record to dst.
func (h *half) seal(s *suite, dst []byte, typ byte, content []byte) []byte {
	if h.aead == nil {
		h.wake(s)
	}
	at := len(dst)
	size := len(content) + 1 + tagSize
	dst = append(dst, typeApplication, 3, 3, byte(size>>8), byte(size))
	dst = append(append(dst, content...), typ)
	h.mask()
	dst = h.aead.Seal(dst[:at+headerSize], h.iv[:], dst[at+headerSize:], dst[at:at+headerSize])
	h.mask()
	h.seq++
	return dst
}

// mask makes the nonce of the next record of the IV (RFC 8446, section 5.3), or the IV of the
// nonce. A nonce of its own would be allocated for each record.
func (h *half) mask() {
	n := binary.BigEndian.Uint64(h.iv[4:])
	binary.BigEndian.PutUint64(h.iv[4:], n^h.seq)
}
