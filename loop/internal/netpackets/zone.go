package netpackets

import (
	"net"
	"strconv"
	"sync"
)

// An address that means something on one link only (fe80::/10) comes with the number of that link,
// and must be given back with it. To ask the system for a link's name costs more than a datagram,
// so names are kept; who renames a link sees the old one, which still means it.
var zoneNames, zoneNumbers sync.Map

// Zone returns the name of a link, or its number if it has no name any more.
func Zone(number uint32) string {
	if number == 0 {
		return ""
	}
	if name, ok := zoneNames.Load(number); ok {
		return name.(string)
	}
	name := strconv.Itoa(int(number))
	if i, err := net.InterfaceByIndex(int(number)); err == nil {
		name = i.Name
	}
	zoneNames.Store(number, name)
	zoneNumbers.Store(name, number)
	return name
}

// scopeOf returns the number of a link that Zone has named.
func scopeOf(name string) uint32 {
	number, ok := zoneNumbers.Load(name)
	if !ok {
		return 0
	}
	return number.(uint32)
}
