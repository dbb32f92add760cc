package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"golang.org/x/net/http/httpguts"

	"github.com/loopwheel/loopwheel/internal/hostguard"
	"github.com/loopwheel/loopwheel/timing/rediswheel"
)

//go:embed page.html
var page string

var pageScript = hostguard.ScriptSource(page)

// maxRequest bounds the body of a request.
const maxRequest = 256 << 10

// An api is the queue over HTTP.
type api struct {
	q   *rediswheel.Queue
	log zerolog.Logger
}

func newAPI(q *rediswheel.Queue, v *view, log zerolog.Logger) http.Handler {
	a := &api{q, log}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src "+pageScript+
			"; connect-src 'self'; img-src data:; frame-ancestors 'none'")
		_, _ = io.WriteString(w, page)
	})
	mux.Handle("GET /events", v)
	mux.HandleFunc("POST /tasks", a.add)
	mux.HandleFunc("GET /tasks", a.list)
	mux.HandleFunc("GET /tasks/{key}", a.get)
	mux.HandleFunc("DELETE /tasks/{key}", a.cancel)
	mux.HandleFunc("PATCH /tasks/{key}", a.move)
	mux.HandleFunc("POST /tasks/{key}/requeue", a.requeue)
	mux.HandleFunc("DELETE /dead", a.purge)
	mux.HandleFunc("GET /stats", a.stats)
	// A page of somebody else must not add tasks by way of a browser that can reach us.
	return hostguard.New(nil, mux)
}

// A duration is written as 1m30s, or in seconds.
type duration time.Duration

// UnmarshalJSON reads it.
func (d *duration) UnmarshalJSON(data []byte) error {
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		seconds, err := strconv.ParseFloat(string(data), 64)
		if err != nil || seconds > 1e10 || seconds < -1e10 {
			return durationError(data)
		}
		*d = duration(seconds * float64(time.Second))
		return nil
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return durationError(data)
	}
	*d = duration(v)
	return nil
}

// durationError is what was to be a duration.
type durationError string

func (e durationError) Error() string {
	return fmt.Sprintf("%.40s is no duration: want a string as 1m30s, or seconds", string(e))
}

// request is a task as it comes over HTTP.
type request struct {
	Key         string            `json:"key"`
	Delay       duration          `json:"delay"`
	At          time.Time         `json:"at"`
	Body        json.RawMessage   `json:"body"` // a string is the body, and anything else is the body as JSON
	OnConflict  string            `json:"on_conflict"`
	MaxAttempts int               `json:"max_attempts"`
	Timeout     duration          `json:"timeout"`
	Every       duration          `json:"every"`
	Cron        string            `json:"cron"`
	Zone        string            `json:"zone"`
	Method      string            `json:"method"`
	URL         string            `json:"url"`
	Header      map[string]string `json:"header"`
}

func (r *request) task() (rediswheel.Task, error) {
	t := rediswheel.Task{
		Key: r.Key, Delay: time.Duration(r.Delay), At: r.At, MaxAttempts: r.MaxAttempts, Timeout: time.Duration(r.Timeout),
		Every: time.Duration(r.Every), Cron: r.Cron, Zone: r.Zone, Method: r.Method, URL: r.URL,
	}
	switch r.OnConflict {
	case "", "replace":
	case "ignore":
		t.OnConflict = rediswheel.Ignore
	case "fail":
		t.OnConflict = rediswheel.Fail
	default:
		return t, fmt.Errorf("on_conflict %q: want replace, ignore or fail", r.OnConflict)
	}
	var text string
	if json.Unmarshal(r.Body, &text) == nil {
		t.Body = []byte(text)
	} else {
		t.Body = r.Body
	}
	if len(r.Header) > 0 {
		t.Header = make(http.Header)
	}
	for name, value := range r.Header {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return t, fmt.Errorf("header %.40q: its name or its value cannot stand in a request", name)
		}
		t.Header.Set(name, value)
	}
	if _, err := http.NewRequest(r.Method, r.URL, nil); err != nil {
		return t, err
	}
	if t.URL != "" && len(r.Body) > 0 && r.Body[0] != '"' && t.Header.Get("Content-Type") == "" {
		if t.Header == nil {
			t.Header = make(http.Header)
		}
		t.Header.Set("Content-Type", "application/json")
	}
	return t, nil
}

// item is a task as it goes over HTTP.
type item struct {
	Key      string     `json:"key"`
	Status   string     `json:"status"`
	Due      *time.Time `json:"due,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	Attempt  int        `json:"attempt"`
	Delivery int        `json:"delivery,omitempty"`
	Error    string     `json:"error,omitempty"`
	Every    string     `json:"every,omitempty"`
	Cron     string     `json:"cron,omitempty"`
	URL      string     `json:"url,omitempty"`
	Body     string     `json:"body,omitempty"` // the first kilobyte
}

func items(found []rediswheel.Info) []item {
	out := make([]item, len(found))
	for i := range found {
		out[i] = toItem(&found[i])
	}
	return out
}

func toItem(i *rediswheel.Info) item {
	body := i.Body[:min(len(i.Body), 1024)]
	out := item{Key: i.Key, Status: i.Status.String(), Due: some(i.Due), Since: some(i.Since), Attempt: i.Attempt, Delivery: i.Delivery,
		Error: i.Error, Cron: i.Cron, URL: i.URL, Body: string(body)}
	if !utf8.Valid(body) {
		out.Body = fmt.Sprintf("%d bytes", len(i.Body))
	}
	if i.Every > 0 {
		out.Every = i.Every.String()
	}
	return out
}

func some(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (a *api) read(w http.ResponseWriter, r *http.Request, v any) bool {
	var body bytes.Buffer
	if _, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, maxRequest)); err != nil {
		reply(w, http.StatusRequestEntityTooLarge, problem{err.Error()})
		return false
	}
	in := json.NewDecoder(&body)
	in.DisallowUnknownFields()
	err := in.Decode(v)
	var wrong durationError
	switch {
	case errors.As(err, &wrong):
		reply(w, http.StatusBadRequest, problem{wrong.Error()})
	case err != nil:
		reply(w, http.StatusBadRequest, problem{"the body is not the JSON that is wanted: " + err.Error()})
	default:
		if _, err = in.Token(); err != io.EOF {
			reply(w, http.StatusBadRequest, problem{"the body goes on after the JSON object"})
			return false
		}
		return true
	}
	return false
}

func (a *api) add(w http.ResponseWriter, r *http.Request) {
	var in request
	if !a.read(w, r, &in) {
		return
	}
	t, err := in.task()
	if err != nil {
		reply(w, http.StatusBadRequest, problem{err.Error()})
		return
	}
	if err := a.q.Add(r.Context(), t); err != nil {
		a.fail(w, err)
		return
	}
	a.show(w, r, t.Key, http.StatusCreated)
}

// show answers with the task; if it is over already, only with its key.
func (a *api) show(w http.ResponseWriter, r *http.Request, key string, code int) {
	i, err := a.q.Get(r.Context(), key)
	switch {
	case errors.Is(err, rediswheel.ErrNotFound) && r.Method != http.MethodGet:
		reply(w, code, item{Key: key, Status: "over"})
	case err != nil:
		a.fail(w, err)
	default:
		reply(w, code, toItem(&i))
	}
}

func (a *api) get(w http.ResponseWriter, r *http.Request) {
	a.show(w, r, r.PathValue("key"), http.StatusOK)
}

func (a *api) list(w http.ResponseWriter, r *http.Request) {
	kinds := map[string]rediswheel.Status{"": rediswheel.Scheduled, "scheduled": rediswheel.Scheduled, "retrying": rediswheel.Retrying,
		"running": rediswheel.Running, "dead": rediswheel.Dead}
	kind, ok := kinds[r.URL.Query().Get("status")]
	if !ok {
		reply(w, http.StatusBadRequest, problem{"status: want scheduled, retrying, running or dead"})
		return
	}
	found, err := a.q.List(r.Context(), kind, 100)
	if err != nil {
		a.fail(w, err)
		return
	}
	reply(w, http.StatusOK, items(found))
}

func (a *api) cancel(w http.ResponseWriter, r *http.Request) {
	status, err := a.q.Cancel(r.Context(), r.PathValue("key"))
	switch {
	case err != nil:
		a.fail(w, err)
	case status == rediswheel.NotFound:
		reply(w, http.StatusNotFound, problem{"no such task"})
	default:
		reply(w, http.StatusOK, item{Key: r.PathValue("key"), Status: status.String()})
	}
}

func (a *api) move(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Delay *duration `json:"delay"`
		At    time.Time `json:"at"`
	}
	if !a.read(w, r, &in) {
		return
	}
	if (in.Delay == nil) == in.At.IsZero() {
		reply(w, http.StatusBadRequest, problem{"want either delay or at; a delay of 0 means now"})
		return
	}
	key := r.PathValue("key")
	var err error
	if in.At.IsZero() {
		err = a.q.Reschedule(r.Context(), key, time.Duration(*in.Delay))
	} else {
		err = a.q.RescheduleAt(r.Context(), key, in.At)
	}
	if err != nil {
		a.fail(w, err)
		return
	}
	a.show(w, r, key, http.StatusOK)
}

func (a *api) requeue(w http.ResponseWriter, r *http.Request) {
	if err := a.q.Requeue(r.Context(), r.PathValue("key")); err != nil {
		a.fail(w, err)
		return
	}
	a.show(w, r, r.PathValue("key"), http.StatusOK)
}

func (a *api) purge(w http.ResponseWriter, r *http.Request) {
	n, err := a.q.Purge(r.Context(), 0)
	if err != nil {
		a.fail(w, err)
		return
	}
	reply(w, http.StatusOK, map[string]int{"purged": n})
}

func (a *api) stats(w http.ResponseWriter, r *http.Request) {
	s, err := a.q.Stats(r.Context())
	if err != nil {
		a.fail(w, err)
		return
	}
	reply(w, http.StatusOK, s)
}

type problem struct {
	Error string `json:"error"`
}

// fail answers with what went wrong.
func (a *api) fail(w http.ResponseWriter, err error) {
	code := http.StatusBadGateway // Redis, or the way there
	for _, known := range []struct {
		err  error
		code int
	}{
		{rediswheel.ErrBadTask, http.StatusBadRequest}, {rediswheel.ErrTooLarge, http.StatusRequestEntityTooLarge},
		{rediswheel.ErrConflict, http.StatusConflict}, {rediswheel.ErrRunning, http.StatusConflict},
		{rediswheel.ErrNotFound, http.StatusNotFound}, {rediswheel.ErrFull, http.StatusInsufficientStorage},
	} {
		if errors.Is(err, known.err) {
			code = known.code
		}
	}
	if code == http.StatusBadGateway {
		a.log.Error().Err(err).Msg("redis")
	}
	reply(w, code, problem{err.Error()})
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // who does not listen any more misses it
}
