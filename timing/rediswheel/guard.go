package rediswheel

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrPrivateAddress is why HTTPCallback does not connect to an address of no public network. It is
// permanent.
var ErrPrivateAddress = errors.New("rediswheel: the address is not public, and HTTPCallback.AllowPrivate is not set")

// refusePrivate is called by the dialer with the address that it is about to connect to.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !isPublic(ap.Addr()) {
		return fmt.Errorf("%w: %s", ErrPrivateAddress, address)
	}
	return nil
}

// special are the networks of the IANA special-purpose address registries (RFC 6890), as they were
// in November 2025, reachable ones included, and multicast. Of IPv6, all that is not in 2000::/3 is
// special.
var special = prefixes(
	"0.0.0.0/8",         // this network
	"10.0.0.0/8",        // private use
	"100.64.0.0/10",     // shared address space
	"127.0.0.0/8",       // loopback
	"169.254.0.0/16",    // link local
	"172.16.0.0/12",     // private use
	"192.0.0.0/24",      // IETF protocol assignments
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // AMT
	"192.88.99.0/24",    // 6to4 relays, deprecated
	"192.168.0.0/16",    // private use
	"192.175.48.0/24",   // direct delegation of AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, limited broadcast
	"2001::/23",         // IETF protocol assignments: Teredo, benchmarks, ORCHID and others
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4
	"2620:4f:8000::/48", // direct delegation of AS112
	"3fff::/20",         // documentation
)

var globalUnicast = netip.MustParsePrefix("2000::/3")

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, t := range texts {
		all = append(all, netip.MustParsePrefix(t))
	}
	return all
}

// isPublic reports whether an address is of the public Internet. IPv4 within IPv6 counts as IPv4 in
// its mapped form only; all other forms are special.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if a.Is6() && !globalUnicast.Contains(a) {
		return false
	}
	for _, p := range special {
		if p.Contains(a) {
			return false
		}
	}
	return a.IsValid()
}
