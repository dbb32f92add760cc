package framing

// Lend returns what is left over, as a piece for Next like any other: frames in it are found as
// fast as in new input, and handed out where they are. It is for much that was kept by Keep. nil:
// there is nothing that Next(nil) would not do as well, because it is known to be less than a
// frame.
//
// Until Return, or Release, is called, the bytes count as the caller's: Buffered does not count
// them, and DecodesInPlace is true. Each rest must go to Next or Keep. Keep takes it back
// without a copy, and so does Next if it is less than a frame.
func (d *Decoder) Lend() []byte {
	r := d.rest
	if r == nil || r.lent || r.size() <= r.seen {
		return nil
	}
	r.lent, r.seen = true, 0
	return r.buf[r.off:]
}

// Return gives back the buffer behind what was lent, if none of it was left over. It is called when
// the last frame has been handled.
func (d *Decoder) Return() {
	if d.rest != nil && d.rest.lent {
		d.drop()
	}
}

// keepLent is Keep when data should be the end of what was lent.
func (d *Decoder) keepLent(data []byte) {
	r := d.rest
	r.lent = false
	off := len(r.buf) - len(data)
	if off >= 0 && len(data) > 0 && &data[0] == &r.buf[off] {
		r.off = off
		d.trim()
		return
	}
	lent := r.buf
	r.buf, r.off = nil, 0
	d.Keep(data)
	d.pool.Put(lent)
}
