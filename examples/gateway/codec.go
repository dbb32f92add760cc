package main

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/loopwheel/loopwheel/codec"
)

// A frame on the wire. Numbers are big-endian. The CRC-32 covers the length and the message:
//
//	  0      1      2      3      4      5       6 ...       3+n ... 7+n
//	+------+------+------+------+------+------+-------------+----------+
//	| 0xA5 |  length n   | kind |     id      |   payload   |  CRC-32  |
//	+------+------+------+------+------+------+-------------+----------+
//	                     |<------ message, n bytes -------->|
const (
	frameStart = 0xA5
	headSize   = 3 // of a message: its kind and its id
	maxPayload = 16 << 10
)

// frames is the codec. It has no state, so one value serves all connections.
type frames struct{}

// Decode implements codec.Codec: it finds the first frame in data, if it is all there.
func (frames) Decode(data []byte) (advance int, message []byte, err error) {
	if len(data) < 3 {
		return 0, nil, nil
	}
	n := int(binary.BigEndian.Uint16(data[1:]))
	end := 3 + n // of the message
	switch {
	case data[0] != frameStart || n < headSize:
		return 0, nil, codec.ErrMalformed // an error closes the connection
	case n > headSize+maxPayload:
		return 0, nil, codec.ErrTooLong
	case len(data) < end+4:
		return 0, nil, nil // not a whole frame yet
	case binary.BigEndian.Uint32(data[end:]) != crc32.ChecksumIEEE(data[1:end]):
		return 0, nil, codec.ErrMalformed
	}
	return end + 4, data[3:end], nil
}

// AppendFrame implements codec.Codec.
func (frames) AppendFrame(dst, message []byte) ([]byte, error) {
	if len(message) < headSize {
		return dst, codec.ErrMalformed
	}
	if len(message) > headSize+maxPayload {
		return dst, codec.ErrTooLong
	}
	begin := len(dst) + 1
	dst = binary.BigEndian.AppendUint16(append(dst, frameStart), uint16(len(message)))
	dst = append(dst, message...)
	return binary.BigEndian.AppendUint32(dst, crc32.ChecksumIEEE(dst[begin:])), nil
}

// The kinds of messages, the side that sends them, and their payload.
const (
	login   = 'L' // device: its token, tokenSize bytes, and its name. Gateway: empty, it is logged in
	report  = 'R' // device: what it measures
	command = 'C' // gateway: what the device is to do. The id is for the answer
	answer  = 'A' // device: the answer to the command with this id
	ping    = 'P' // gateway: is the device still there?
	pong    = 'p' // device: it is
)

// message returns a message, to be sent.
func message(kind byte, id uint16, payload []byte) []byte {
	return append([]byte{kind, byte(id >> 8), byte(id)}, payload...)
}

// split is the opposite of message. The codec has checked that the head is there.
func split(message []byte) (kind byte, id uint16, payload []byte) {
	return message[0], binary.BigEndian.Uint16(message[1:]), message[headSize:]
}
