package loop

import "net"

// ends are the addresses of a connection. Most peers are of TCP, and those of a listener mostly
// have one local address, which is kept once: an idle connection is little more than 200 bytes of
// this package, so two addresses as interfaces would be a seventh of it.
type ends struct {
	peer *net.TCPAddr // the remote one, if it is of TCP
	rest *otherEnds
}

// otherEnds are shared where remote is nil, and do not change.
type otherEnds struct {
	ln            *listener // which counts the connection
	local, remote net.Addr
}

func (e ends) remote() net.Addr {
	if e.peer != nil {
		return e.peer
	}
	return e.rest.remote
}

func (e ends) local() net.Addr { return e.rest.local }

// endsOf returns the ends of a connection of ln that is new on l.
func (l *Loop) endsOf(ln *listener, local, remote net.Addr) ends {
	peer, ok := remote.(*net.TCPAddr)
	if !ok || peer == nil {
		return ends{rest: &otherEnds{ln: ln, local: local, remote: remote}}
	}
	if l.ends == nil || l.ends.ln != ln || !sameTCP(l.ends.local, local) {
		l.ends = &otherEnds{ln: ln, local: local}
	}
	return ends{peer: peer, rest: l.ends}
}

// sameTCP reports whether two addresses of TCP are the same, in the same form.
func sameTCP(a, b net.Addr) bool {
	x, ok := a.(*net.TCPAddr)
	y, ok2 := b.(*net.TCPAddr)
	if !ok || !ok2 || x == nil || y == nil {
		return false
	}
	return x.Port == y.Port && x.Zone == y.Zone && len(x.IP) == len(y.IP) && x.IP.Equal(y.IP)
}
