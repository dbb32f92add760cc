package rediswheel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// A record is what Redis has of a task besides its key and its state. Its first byte is its form:
// 'b' is followed by the body, 'm' by the length of the other fields as a varint, these fields as
// JSON, and the body.
const (
	formBody = 'b'
	formMeta = 'm'
)

// record encodes the task.
func (t *Task) record() ([]byte, error) {
	rest := *t
	rest.Key, rest.Delay, rest.At, rest.Body, rest.OnConflict = "", 0, time.Time{}, nil, Replace
	rest.Due, rest.Occurred, rest.Attempt, rest.Delivery = time.Time{}, time.Time{}, 0, 0
	fields, err := json.Marshal(rest)
	switch {
	case err != nil:
		return nil, badTask("%q: %v", t.Key, err)
	case string(fields) == "{}":
		return append([]byte{formBody}, t.Body...), nil
	case len(fields) > maxMeta:
		return nil, tooLarge("URL, headers and other fields of %q have %d bytes, of at most %d", t.Key, len(fields), maxMeta)
	}
	record := binary.AppendUvarint([]byte{formMeta}, uint64(len(fields)))
	return append(append(record, fields...), t.Body...), nil
}

var errRecord = errors.New("rediswheel: the record in Redis is not one of ours, or of a later version")

// read decodes a record into the task.
func (t *Task) read(record string) error {
	switch {
	case record != "" && record[0] == formBody:
		t.Body = []byte(record[1:])
		return nil
	case record == "" || record[0] != formMeta:
		return errRecord
	}
	rest := []byte(record[1:])
	n, size := binary.Uvarint(rest)
	if size <= 0 || n > uint64(len(rest)-size) || json.Unmarshal(rest[size:size+int(n)], t) != nil {
		return errRecord
	}
	t.Body = rest[size+int(n):]
	return nil
}

// readState decodes a state into the task, and returns why the last attempt failed. claim.lua says
// what a state is; a task that was never started has none.
func (t *Task) readState(state string) (reason string) {
	f := strings.SplitN(state, " ", 6)
	if len(f) < 6 {
		t.Attempt = 1
		return ""
	}
	t.Attempt, t.Delivery = int(toInt(f[2]))+1, int(toInt(f[3]))
	t.Occurred = time.UnixMilli(toInt(f[4]))
	return f[5]
}

// maxReason is how much of a handler's error is kept with the task.
const maxReason = 256

func reason(err error) string {
	s := strings.ToValidUTF8(err.Error(), "\uFFFD")
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "..."
	}
	return s
}
