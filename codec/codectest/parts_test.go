package codectest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/loopwheel/loopwheel/codec"
)

// joined is a codec of lines that go on in the next one if they end in a backslash.
type joined struct {
	fault string
	parts []byte // of an unfinished message, if not nil
	asked int
}

func (j *joined) New() codec.Codec { return &joined{fault: j.fault} }

func (j *joined) AppendFrame(dst, frame []byte) ([]byte, error) {
	if bytes.HasSuffix(frame, []byte(`\`)) {
		return dst, codec.ErrMalformed
	}
	return lines.AppendFrame(dst, frame)
}

func (j *joined) Decode(data []byte) (advance int, frame []byte, err error) {
	advance, line, err := lines.Decode(data)
	if err != nil || advance == 0 {
		return 0, nil, err
	}
	part, goesOn := bytes.CutSuffix(line, []byte(`\`))
	switch {
	case len(j.parts)+len(part) <= lines.Max || j.fault == "knows no limit":
	case j.fault == "calls too much malformed":
		return 0, nil, codec.ErrMalformed
	default:
		return 0, nil, codec.ErrTooLong
	}
	whole := append(append([]byte{}, j.parts...), part...)
	switch {
	case !goesOn:
		j.parts = nil
		return advance, whole, nil
	case j.fault == "delivers parts":
		return advance, whole, nil
	case j.fault == "forgets a part":
		whole = whole[:len(whole)-len(part)]
	case j.fault == "takes parts without end":
		whole = whole[:min(len(whole), 500)]
	}
	j.parts = whole
	return advance, nil, nil
}

func (j *joined) Unfinished() (size int, ok bool) {
	j.asked++
	switch {
	case j.fault == "begins unfinished" && j.asked == 1, j.fault == "is never done":
		return 0, true
	case j.fault == "says nothing":
		return 0, false
	case j.fault == "owes bytes" && j.parts == nil:
		return -1, true
	case j.fault == "holds bytes of nothing" && j.parts == nil:
		return 1, false
	case j.fault == "changes its mind":
		return j.asked, true
	}
	return len(j.parts), j.parts != nil
}

// unsaid is joined without Unfinished.
type unsaid struct{ j *joined }

func (u unsaid) New() codec.Codec                              { return unsaid{new(joined)} }
func (u unsaid) Decode(data []byte) (int, []byte, error)       { return u.j.Decode(data) }
func (u unsaid) AppendFrame(dst, frame []byte) ([]byte, error) { return u.j.AppendFrame(dst, frame) }

func inThree(frame []byte) [][]byte {
	third := len(frame) / 3
	goesOn := func(p []byte) []byte { return append(bytes.Clone(p), `\`+"\n"...) }
	return [][]byte{goesOn(frame[:third]), goesOn(frame[third : 2*third]), append(bytes.Clone(frame[2*third:]), '\n')}
}

func joinedSuite(c codec.Codec) Suite {
	return Suite{New: func() codec.Codec { return c }, Samples: samples(c), Max: lines.Max, Parts: inThree}
}

func TestBrokenAssemblersFail(t *testing.T) {
	for fault, check := range map[string]string{
		"knows no limit":           "PartsFlood",
		"takes parts without end":  "PartsFlood",
		"calls too much malformed": "PartsFlood",
		"delivers parts":           "Parts",
		"forgets a part":           "Parts",
		"says nothing":             "Parts",
		"begins unfinished":        "Parts",
		"is never done":            "Alone",
		"owes bytes":               "Alone",
		"holds bytes of nothing":   "Alone",
		"changes its mind":         "Alone",
	} {
		t.Run(fault, func(t *testing.T) {
			if err := joinedSuite(&joined{fault: fault}).check(named(t, check)); err == nil {
				t.Errorf("passes %s", check)
			}
		})
	}
	t.Run("is none", func(t *testing.T) {
		if err := joinedSuite(unsaid{new(joined)}).check(named(t, "Parts")); err == nil {
			t.Error("passes Parts")
		}
	})
}

func TestGoodAssemblerPasses(t *testing.T) { joinedSuite(new(joined)).Run(t) }

// A codec that leaves the parts where they are, with the Decoder, need not say so.
func TestPartsMayStayWithTheDecoder(t *testing.T) {
	s := joinedSuite(patient{})
	s.Max = 0
	for _, name := range []string{"Parts", "PartsFlood"} {
		if err := s.check(named(t, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// patient takes all lines of a message at once.
type patient struct{}

func (patient) AppendFrame(dst, frame []byte) ([]byte, error) {
	return new(joined).AppendFrame(dst, frame)
}

func (patient) Decode(data []byte) (advance int, frame []byte, err error) {
	var j joined
	for advance < len(data) {
		n, frame, err := j.Decode(data[advance:])
		if n == 0 || err != nil {
			return 0, nil, err
		}
		if advance += n; frame != nil {
			return advance, frame, nil
		}
	}
	return 0, nil, nil
}

// If the codec refuses the first part, the suite is misconfigured, and it says so.
func TestPartsFloodSeesErrors(t *testing.T) {
	s := joinedSuite(new(joined))
	s.Parts = func([]byte) [][]byte { return [][]byte{bytes.Repeat([]byte("x"), 2*lines.Max)} }
	if err := s.check(named(t, "PartsFlood")); !errors.Is(err, codec.ErrTooLong) {
		t.Errorf("a first part that is too long: %v", err)
	}
}
