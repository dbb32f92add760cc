package rediswheel

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

// recordID is the length of the unique prefix of a record.
const recordID = 16

// record encodes what Redis stores of a task besides its key and its state: random letters, by
// which a repeated Add of the client is recognized; the fields as JSON, if any; a line feed; and
// the body.
func (t *Task) record() ([]byte, error) {
	fields, err := json.Marshal(t)
	switch {
	case err != nil:
		return nil, wrap(ErrBadTask, "%q: %v", t.Key, err)
	case string(fields) == "{}":
		fields = nil
	case len(fields) > maxMeta:
		return nil, wrap(ErrTooLarge, "URL, headers and other fields of %q have %d bytes, of at most %d", t.Key, len(fields), maxMeta)
	}
	record := append([]byte(rand.Text()[:recordID]), fields...)
	return append(append(record, '\n'), t.Body...), nil
}

// read decodes a record into the task.
func (t *Task) read(record string) error {
	fields, body, ok := strings.Cut(record[min(recordID, len(record)):], "\n")
	if !ok || fields != "" && json.Unmarshal([]byte(fields), t) != nil {
		return errors.New("rediswheel: the record in Redis is not one of ours, or it is of a later version")
	}
	t.Body = []byte(body)
	return nil
}

// readState decodes a state into the task, and returns why the last attempt failed. claim.lua
// documents the state; a task that was never started has none.
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

// reason returns the part of a handler's error that is stored with the task.
func reason(err error) string {
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), 256)], "\uFFFD")
}
