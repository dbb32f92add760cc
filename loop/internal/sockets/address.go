package sockets

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// protocolHint says where what others have a scheme for is found here.
var protocolHint = map[string]string{
	"tls": tlsHint, "ssl": tlsHint, "tcps": tlsHint,
	"ws": webHint, "http": webHint, "wss": webHint + tlsHint, "https": webHint + tlsHint,
}

const (
	tlsHint = "; for TLS set the field TLS"
	webHint = "; for WebSocket set the field Codec (package codec/websocket), in a Dialer to a *websocket.Client, and dial its Addr"
)

// SplitAddress takes "tcp://host:port" or "unix://path" apart.
func SplitAddress(addr string) (network, address string, err error) {
	network, address, ok := strings.Cut(addr, "://")
	if !ok {
		return "", "", errors.New(`no scheme: want something like "tcp://:7000" or "unix:///run/x.sock"`)
	}
	switch network {
	case "tcp", "tcp4", "tcp6", "udp", "udp4", "udp6":
		if _, _, err := net.SplitHostPort(address); err != nil {
			return "", "", fmt.Errorf(`want "%s://host:port": %w`, network, err)
		}
	case "unix":
		if address == "" {
			return "", "", errors.New("the path of the socket is missing")
		}
		if strings.ContainsRune(address, 0) {
			return "", "", errors.New("the path has a NUL byte (an abstract name begins with @ in its place)")
		}
		if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(address) > most {
			return "", "", fmt.Errorf("the path has %d bytes, and the system takes at most %d", len(address), most)
		}
	default:
		return "", "", fmt.Errorf("unknown scheme %q: want tcp, unix or udp, or one of tcp4, tcp6, udp4 and udp6%s",
			network, protocolHint[network])
	}
	return network, address, nil
}

// isFile reports whether something that is not a socket is at path.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&os.ModeSocket == 0
}

// ListenAdvice says what to do about an error of listening, or nothing.
func ListenAdvice(err error, network, address string) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && network == "unix" && isFile(address):
		return " (what is there is not a socket: remove it, or take another path)"
	case errors.Is(err, syscall.EADDRINUSE) && network == "unix":
		return " (another process listens there: stop it, or take another path)"
	case errors.Is(err, syscall.EADDRINUSE):
		return " (another process listens there: stop it, or take another address; port 0 takes a free one)"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return " (this machine does not have that address)"
	case errors.Is(err, syscall.EACCES):
		return " (not permitted: a port below 1024, or a directory that this user may not write)"
	}
	return ""
}
