package testkit

import (
	"errors"
	"testing"
)

// Want reports an error unless got is want. what names the value.
func Want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// WantErr reports an error unless err is want or wraps it. With a want of nil, err must be nil.
func WantErr(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}
