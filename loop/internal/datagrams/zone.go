//go:build linux && !386 && !s390x

package datagrams

import (
	"net"
	"strconv"
	"sync"
)

// An address that means something on one link only (fe80::/10) comes with the number of that link,
// and must be given back with it. To ask the system for a link's name costs more than a datagram,
// so names are kept; who renames a link sees the old one, which still means it.
var zoneNames, zoneNumbers sync.Map

// ZoneOf returns the name of a link.
func ZoneOf(number uint32) string {
	if name, ok := zoneNames.Load(number); ok {
		return name.(string)
	}
	name := zone(int(number))
	zoneNames.Store(number, name)
	zoneNumbers.Store(name, number)
	return name
}

// scopeOf returns the number of a link that ZoneOf has named.
func scopeOf(name string) uint32 {
	number, ok := zoneNumbers.Load(name)
	if !ok {
		return 0
	}
	return number.(uint32)
}

// zone returns the name of a link, or its number if it has none any more.
func zone(index int) string {
	if index == 0 {
		return ""
	}
	if i, err := net.InterfaceByIndex(index); err == nil {
		return i.Name
	}
	return strconv.Itoa(index)
}
