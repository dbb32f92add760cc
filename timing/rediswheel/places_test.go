package rediswheel

import "testing"

// A Run that ends while Redis does not answer gives back the places of tasks of whose end Redis was
// not told.
func TestLeaveGivesPlacesBack(t *testing.T) {
	p := NewPlaces(4)
	gone, other := p.join(1), p.join(1)
	if n := gone.take(3); n != 3 {
		t.Fatalf("took %d places", n)
	}
	if n := other.take(4); n != 1 {
		t.Fatalf("took %d places of the last", n)
	}
	gone.leave()
	select {
	case <-other.freed:
	default:
		t.Error("who waits for places is not told")
	}
	if n := other.take(4); n != 3 {
		t.Errorf("%d of 3 places are free", n)
	}
}
