package loopslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
)

// maxDepth is how deep groups are taken apart; what is within more is left as it is.
const maxDepth = 16

var errNoObject = errors.New("loopslog: a line that is no JSON object")

// fieldsOf returns the fields of a JSON object, in their order.
func fieldsOf(object []byte, depth int) (fields []slog.Attr, err error) {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errNoObject
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		value, err := valueOf(raw, depth)
		if err != nil {
			return nil, err
		}
		fields = append(fields, slog.Attr{Key: key.(string), Value: value})
	}
	return fields, nil
}

// valueOf returns what a JSON value is in a record. Arrays stay JSON.
func valueOf(raw json.RawMessage, depth int) (slog.Value, error) {
	switch b := raw[0]; {
	case b == '"':
		var text string
		err := json.Unmarshal(raw, &text)
		return slog.StringValue(text), err
	case b == '{' && depth < maxDepth:
		fields, err := fieldsOf(raw, depth+1)
		return slog.GroupValue(fields...), err
	case b == '{' || b == '[':
		return slog.AnyValue(raw), nil
	case b == 't' || b == 'f':
		return slog.BoolValue(b == 't'), nil
	case b == 'n':
		return slog.AnyValue(nil), nil
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return slog.Int64Value(n), nil
	}
	if n, err := strconv.ParseUint(string(raw), 10, 64); err == nil {
		return slog.Uint64Value(n), nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return slog.Float64Value(f), err
}
