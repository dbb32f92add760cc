//go:build !linux

package main

// floorPeers needs epoll, which only Linux has.
var floorPeers []peer
