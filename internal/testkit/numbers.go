package testkit

import (
	"iter"
	"reflect"
)

// Numbers returns the exported numbers and durations of the struct that p points to, by name, with
// those of the structs of its package in it: "NumLoops", "Limits.MaxConns". Their values can be set.
func Numbers(p any) iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		v := reflect.ValueOf(p).Elem()
		for i := range v.NumField() {
			f := v.Type().Field(i)
			switch {
			case !f.IsExported():
			case f.Type.Kind() == reflect.Int || f.Type.Kind() == reflect.Int64:
				if !yield(f.Name, v.Field(i)) {
					return
				}
			case f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == v.Type().PkgPath():
				for name, inner := range Numbers(v.Field(i).Addr().Interface()) {
					if !yield(f.Name+"."+name, inner) {
						return
					}
				}
			}
		}
	}
}
