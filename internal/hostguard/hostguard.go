// Package hostguard protects pages that only the operators of a server are to see from foreign
// pages in their browsers.
//
// A foreign page can give its own name the address of a server that only the browser can reach (DNS
// rebinding). To the browser both are of one origin then, and what the page reads is not held back.
// The request names the foreign host all the same, and that is how it is recognized.
package hostguard

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// New returns a handler that passes on to next what a browser asks for from a page of this server's
// own, and answers all else with 403 Forbidden or 421 Misdirected Request.
//
// The Host of a request may be an IP address, which no name can be rebound to, a name of this
// machine's loopback interface, or one of names, without a port. Answers may not be shown in
// frames.
func New(names []string, next http.Handler) http.Handler {
	guarded := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !Allowed(r.Host, names) {
			http.Error(w, "this page is not served under that name: ask for its IP address, or have the name listed",
				http.StatusMisdirectedRequest)
			return
		}
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Add("Content-Security-Policy", "frame-ancestors 'none'")
		guarded.ServeHTTP(w, r)
	})
}

// Allowed reports whether host, as a request names it, is an IP address, a name of the loopback
// interface, or in names.
func Allowed(host string, names []string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") { // RFC 6761: never in the DNS
		return true
	}
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
}
