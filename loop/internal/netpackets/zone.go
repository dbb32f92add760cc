package netpackets

import (
	"net"
	"strconv"
	"sync"
)

// To ask the system for a link's name costs more than a datagram, so names are kept; who renames a
// link sees the old one.
var zoneNames sync.Map

// Zone returns the name of the link with that number, or the number if it has no name any more. An
// address that means something on one link only (fe80::/10) comes with it.
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
	return name
}
