package hostguard

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHosts(t *testing.T) {
	ok := New([]string{"admin.example"}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"127.0.0.1:9090", "", 204},
		{"127.0.0.1", "http://127.0.0.1", 204},
		{"[::1]:9090", "", 204},
		{"[::1]", "", 204},
		{"10.1.2.3:9090", "", 204},
		{"localhost:9090", "", 204},
		{"LocalHost.", "", 204},
		{"page.localhost:1", "", 204},
		{"admin.example:9090", "", 204},
		{"Admin.Example", "", 204},
		{"admin.example", "http://admin.example", 204},
		{"evil.example:9090", "http://evil.example:9090", 421},
		{"evil.example", "", 421},
		{"127.0.0.1.evil.example:9090", "", 421},
		{"localhost.evil.example", "", 421},
		{"evillocalhost", "", 421},
		{"", "", 421},
		{"127.0.0.1:9090", "http://evil.example", 403},
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.Host = tt.host
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		ok.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("Host %q, Origin %q: %d, want %d", tt.host, tt.origin, w.Code, tt.want)
		}
		if h := w.Header(); w.Code == 204 && (h.Get("X-Frame-Options") != "DENY" || h.Get("X-Content-Type-Options") != "nosniff") {
			t.Errorf("Host %q: the answer may be shown in a frame, or taken for something else", tt.host)
		}
	}
}
