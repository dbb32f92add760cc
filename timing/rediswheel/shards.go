package rediswheel

import "strconv"

// numSlots is how many hash slots a Redis Cluster has.
const numSlots = 16384

// ownKey is the place of the hash that says who owns a shard among its keys.
const ownKey = 4

// shardKeys are the names of a shard's keys, in the order in which scripts have them. The prefix of
// own is that of the channel, too.
func shardKeys(name, prefix, tag string) []string {
	p := name + ":{" + tag + "}:"
	return []string{p + "due", p + "run", p + "state", p + "body", prefix + "{" + tag + "}:own", p + "dead"}
}

// shardTag returns the tag of shard i of n: the smallest number that is a key of that shard. A
// cluster that has its slots in ranges, as they all do, then has shards on all masters, alike to
// within one.
func shardTag(i, n int) string {
	for k := 0; ; k++ {
		if tag := strconv.Itoa(k); shardOf(tag, n) == i {
			return tag
		}
	}
}

// shardOf cuts the slots of a cluster into n equal parts, and returns the one that has the key.
func shardOf(key string, n int) int { return int(crc16(key)) % numSlots * n / numSlots }

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
