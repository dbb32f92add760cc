package codectest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/loopwheel/loopwheel/codec"
)

// saved wants a codec.Saver to go on in a new codec, from between any two pieces of input.
func saved(s *Suite) error {
	if _, ok := connection(s.New()).(codec.Saver); !ok {
		return nil
	}
	rnd := random()
	for range 20 {
		wire, err := s.wire(s.Samples...)
		if err != nil {
			return err
		}
		if err := s.moving(s.Samples, cut(wire, max(1, len(wire)/(1+rnd.IntN(50))), rnd)...); err != nil {
			return err
		}
	}
	if s.Parts == nil {
		return nil
	}
	for i, frame := range s.Samples {
		parts := s.Parts(frame)
		if err := s.moving([][]byte{frame, frame}, slices.Concat(parts, parts)...); err != nil {
			return fmt.Errorf("sample %d in parts: %w", i, err)
		}
	}
	return nil
}

// moving is expect of a connection that moves after each piece, if its state can be saved there.
func (s *Suite) moving(want [][]byte, pieces ...[]byte) error {
	d := newDriver(s.New(), true)
	for i, piece := range pieces {
		if err := d.feed(piece); err != nil {
			return fmt.Errorf("moved after each piece, in piece %d: %w", i+1, err)
		}
		state, err := save(d.codec)
		switch {
		case errors.Is(err, errBroken):
			return err
		case err != nil:
			continue
		}
		d.codec, d.seen = connection(s.New()), 0
		if err := d.codec.(codec.Saver).Restore(state); err != nil {
			return fmt.Errorf("after piece %d, Restore refuses what Save returned: %w", i+1, err)
		}
	}
	return s.same(d.frames, want)
}

// save returns c's state, and wants the same one twice.
func save(c codec.Codec) ([]byte, error) {
	state, err := c.(codec.Saver).Save()
	if err != nil {
		return nil, err
	}
	state = bytes.Clone(state)
	if again, err := c.(codec.Saver).Save(); err != nil || !bytes.Equal(again, state) {
		return nil, fmt.Errorf("%w: Save returned %s, and then %s, %v", errBroken, show(state), show(again), err)
	}
	return state, nil
}

// savedHostile wants Restore to refuse or to take states of another version, and not to panic then
// or later.
func savedHostile(s *Suite) error {
	if _, ok := connection(s.New()).(codec.Saver); !ok {
		return nil
	}
	rnd := random()
	var states [][]byte
	wire, err := s.wire(s.Samples...)
	if err != nil {
		return err
	}
	pieces := cut(wire, max(1, len(wire)/20), rnd)
	if s.Parts != nil {
		pieces = append(pieces, s.Parts(s.Samples[0])...)
	}
	d := newDriver(s.New(), true)
	for _, piece := range pieces {
		if err := d.feed(piece); err != nil {
			return err
		}
		if state, err := save(d.codec); err == nil {
			states = append(states, state)
		}
	}
	for _, state := range states {
		for n := range min(len(state), 64) {
			damaged := bytes.Clone(state)
			damaged[n] ^= byte(1 + rnd.IntN(255))
			for _, state := range [][]byte{state[:n], damaged} {
				d := &driver{codec: connection(s.New()), resume: true} // Restore replaces Open
				if d.codec.(codec.Saver).Restore(state) == nil {
					_ = d.feed(pieces...) // an error is as good as an answer
				}
			}
		}
	}
	return nil
}
