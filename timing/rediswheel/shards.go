package rediswheel

import (
	"strconv"
)

// numSlots is how many hash slots a Redis Cluster has.
const numSlots = 16384

// ownKey is the place of the hash that says who owns a shard among its keys.
const ownKey = 4

// shardKeys are the names of a shard's keys, in the order in which scripts have them.
func shardKeys(name, tag string) []string {
	prefix := name + ":{" + tag + "}:"
	return []string{prefix + "due", prefix + "run", prefix + "state", prefix + "body", prefix + "own", prefix + "dead"}
}

// shardTag returns the tag of shard i of n: the smallest number whose slot is in the i-th of n
// equal parts of all slots. A cluster that has its slots in ranges, as they all do, then has shards
// on all masters, alike to within one.
func shardTag(i, n int) string {
	from, to := i*numSlots/n, (i+1)*numSlots/n
	for k := 0; ; k++ {
		tag := strconv.Itoa(k)
		if slot := int(crc16(tag)) % numSlots; from <= slot && slot < to {
			return tag
		}
	}
}

// shardOf spreads keys over n shards: FNV-1a, with its high bits, which depend on all of the key,
// folded in.
func shardOf(key string, n int) int {
	h := uint64(14695981039346656037)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * 1099511628211
	}
	h ^= h >> 32
	h *= 0x9e3779b97f4a7c15
	return int((h >> 33) % uint64(n))
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
