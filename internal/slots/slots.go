// Package slots cuts the hash slots of a Redis Cluster into equal parts. A cluster that has its
// slots in ranges, as they all do, then has parts on all masters, alike to within one.
package slots

import "strconv"

// number is how many hash slots a Redis Cluster has.
const number = 16384

// Part returns which of n parts has a key, of 0 to n-1. The key has no braces.
func Part(key string, n int) int { return int(crc16(key)) % number * n / number }

// Tag returns a hash tag, without its braces, of part i of n: prefix and the smallest number that
// makes it one.
func Tag(prefix string, i, n int) string {
	for k := 0; ; k++ {
		if tag := prefix + strconv.Itoa(k); Part(tag, n) == i {
			return tag
		}
	}
}

// crc16 is the CRC that the Redis Cluster specification hashes keys with: CRC-16/XMODEM.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
