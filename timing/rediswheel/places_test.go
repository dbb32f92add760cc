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

// One place goes to those who want it in turns. A claim that found no task is no turn.
func TestPlaceInTurn(t *testing.T) {
	p := NewPlaces(1)
	busy, other := p.join(1), p.join(1)
	take := func(s *share, want int) {
		t.Helper()
		if n := s.take(100); n != want {
			t.Fatalf("took %d places, want %d", n, want)
		}
	}
	take(busy, 1)
	take(other, 0)
	busy.giveBack(1, 1)
	take(busy, 0)
	for range 3 { // of its shards
		take(other, 1)
		other.giveBack(1, 0)
	}
	take(other, 1)
	take(busy, 0)
	other.giveBack(1, 1)
	take(busy, 1)
}
