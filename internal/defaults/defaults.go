// Package defaults fills in numbers of a configuration that are zero, and checks the others.
package defaults

import (
	"cmp"
	"fmt"
	"time"
)

// Set replaces a zero field by standard, and returns an error if it is then below least. A duration
// without a unit is an error, too: see Unit.
func Set[T int | time.Duration](name string, field *T, standard, least T) error {
	*field = cmp.Or(*field, standard)
	if *field < least {
		return fmt.Errorf("%s is %v: want at least %v; 0 means the default", name, *field, least)
	}
	if d, ok := any(*field).(time.Duration); ok {
		return Unit(name, d)
	}
	return nil
}

// Unit returns an error if d is above 0 and below a tenth of a millisecond: it is 20 where
// 20*time.Second was meant, or 60000 where that was meant in milliseconds.
func Unit(name string, d time.Duration) error {
	if 0 < d && d < 100*time.Microsecond {
		return fmt.Errorf("%s is %v: is the unit missing?", name, d)
	}
	return nil
}
