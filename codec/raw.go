package codec

// Raw is the codec without framing and without a Max, because it never waits for more: a frame is
// whatever has arrived, in the pieces the network made. Frames are never empty, and boundaries
// between the frames sent are not kept.
//
//	on the wire    frames
//	h e l l o      "hello", or "he" and "llo", or ...
type Raw struct{}

// Decode returns all of data as one frame.
func (Raw) Decode(data []byte) (advance int, frame []byte, err error) {
	if len(data) == 0 {
		return 0, nil, nil
	}
	return len(data), data[:len(data):len(data)], nil
}

// AppendFrame appends frame as it is.
func (Raw) AppendFrame(dst, frame []byte) ([]byte, error) {
	return append(dst, frame...), nil
}
