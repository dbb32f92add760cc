// Package defaults fills in numbers of a configuration that are zero, and checks the others.
package defaults

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

// Set puts standard in the place of zero, and returns an error if the field is below least then. A
// name with Timeout in it is that of a time: one that is too short to be meant, such as 20 where
// 20*time.Second was, is an error, too.
func Set[T int | time.Duration](name string, field *T, standard, least T) error {
	switch *field = cmp.Or(*field, standard); {
	case *field < least:
		return fmt.Errorf("%s is %v: want at least %v; 0 means the default", name, *field, least)
	case strings.Contains(name, "Timeout") && 0 < *field && time.Duration(*field) < 10*time.Microsecond:
		return fmt.Errorf("%s is %v: is the unit missing?", name, *field)
	}
	return nil
}
