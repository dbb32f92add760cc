package rediswheel

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
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

type meta struct {
	MaxAttempts int           `json:"n,omitempty"`
	Timeout     time.Duration `json:"t,omitempty"`
	Every       time.Duration `json:"e,omitempty"`
	Cron        string        `json:"c,omitempty"`
	Zone        string        `json:"z,omitempty"`
	Misfire     Misfire       `json:"f,omitempty"`
	Method      string        `json:"m,omitempty"`
	URL         string        `json:"u,omitempty"`
	Header      http.Header   `json:"h,omitempty"`
	KeepResult  time.Duration `json:"k,omitempty"`
}

func (t *Task) meta() meta {
	return meta{t.MaxAttempts, t.Timeout, t.Every, t.Cron, t.Zone, t.Misfire, t.Method, t.URL, t.Header, t.KeepResult}
}

func (m *meta) isZero() bool {
	return m.MaxAttempts == 0 && m.Timeout == 0 && m.Every == 0 && m.Cron == "" && m.Misfire == 0 &&
		m.KeepResult == 0 && m.Method == "" && m.URL == "" && len(m.Header) == 0
}

// record encodes the task.
func (t *Task) record() ([]byte, error) {
	m := t.meta()
	if m.isZero() {
		return append([]byte{formBody}, t.Body...), nil
	}
	fields, err := json.Marshal(m)
	if err != nil {
		return nil, badTask("%q: %v", t.Key, err)
	}
	if len(fields) > maxMeta {
		return nil, tooLarge("URL, headers and other fields of %q have %d bytes, of at most %d", t.Key, len(fields), maxMeta)
	}
	record := make([]byte, 0, 1+binary.MaxVarintLen32+len(fields)+len(t.Body))
	record = binary.AppendUvarint(append(record, formMeta), uint64(len(fields)))
	return append(append(record, fields...), t.Body...), nil
}

var errRecord = errors.New("rediswheel: the record in Redis is not one of ours, or of a later version")

// read decodes a record into the task. The body is a part of the record.
func (t *Task) read(record string) error {
	if record == "" {
		return errRecord
	}
	rest := []byte(record[1:])
	switch record[0] {
	case formBody:
		t.Body = rest
		return nil
	case formMeta:
	default:
		return errRecord
	}
	n, size := binary.Uvarint(rest)
	if size <= 0 || n > uint64(len(rest)-size) {
		return errRecord
	}
	fields, body := rest[size:size+int(n)], rest[size+int(n):]
	var m meta
	if err := json.Unmarshal(fields, &m); err != nil {
		return errRecord
	}
	t.Body = body
	t.MaxAttempts, t.Timeout, t.Every, t.Cron, t.Zone, t.Misfire = m.MaxAttempts, m.Timeout, m.Every, m.Cron, m.Zone, m.Misfire
	t.Method, t.URL, t.Header, t.KeepResult = m.Method, m.URL, m.Header, m.KeepResult
	return nil
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
