package main

import "bytes"

// slots is the number of slots that keys hash to, as in a Redis Cluster.
const slots = 16384

// slot returns the slot of a key: CRC16 of what is between the first { and the next }, if there is
// something, else of all. So keys with the same tag, as {user1}.name and {user1}.mail, share a
// slot.
func slot(key []byte) uint16 {
	if from := bytes.IndexByte(key, '{'); from >= 0 {
		if n := bytes.IndexByte(key[from+1:], '}'); n > 0 {
			key = key[from+1 : from+1+n]
		}
	}
	return crc16(key) % slots
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, starting with 0.
func crc16(data []byte) (crc uint16) {
	for _, b := range data {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		table[i] = crc
	}
	return table
}()
