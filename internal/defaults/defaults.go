// Package defaults reads what the zeros of a configuration mean from the tags of its fields:
// default is the value that is taken in place of zero, zero says what happens without one, and
// least is the least of other values.
package defaults

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Fill gives each field that is zero the default in its tag, and refuses those that are negative or
// too small: all fields with a tag, and no others, are numbers and durations. config points to a
// struct, which has that name in errors: "package: Struct".
func Fill(name string, config any) error {
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		def, hasDefault := f.Tag.Lookup("default")
		zero, hasZero := f.Tag.Lookup("zero")
		if !hasDefault && !hasZero {
			continue
		}
		switch field := v.Field(i); {
		case field.Int() < 0:
			return fmt.Errorf("%s.%s is negative; 0 means %s", name, f.Name, cmp.Or(zero, def))
		case strings.HasSuffix(f.Name, "Timeout") && lacksUnit(time.Duration(field.Int())):
			return fmt.Errorf("%s.%s is %v: is the unit missing?", name, f.Name, time.Duration(field.Int()))
		case field.Int() == 0 && hasDefault:
			field.SetInt(parse(f.Type, def))
		case f.Tag.Get("least") != "" && field.Int() < parse(f.Type, f.Tag.Get("least")):
			return fmt.Errorf("%s.%s is %v, and at least %s", name, f.Name, field, f.Tag.Get("least"))
		}
	}
	return nil
}

// lacksUnit reports whether d is too short to be meant: 20 where 20*time.Second was.
func lacksUnit(d time.Duration) bool { return 0 < d && d < 10*time.Microsecond }

// parse reads the default of a field: a number, or a duration. It panics if that is neither,
// which the first Server of any test sees.
func parse(t reflect.Type, def string) int64 {
	if t == reflect.TypeFor[time.Duration]() {
		d, err := time.ParseDuration(def)
		if err != nil {
			panic(err)
		}
		return int64(d)
	}
	n, err := strconv.ParseInt(def, 0, 64)
	if err != nil {
		panic(err)
	}
	return n
}
