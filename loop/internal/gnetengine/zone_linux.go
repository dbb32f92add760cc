//go:build !386 && !s390x

package gnetengine

import "github.com/loopwheel/loopwheel/loop/internal/netpackets"

func zoneOf(number uint32) string { return netpackets.Zone(number) }
