package redisgroup

import (
	"strconv"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// clusterBuckets is the number of hash tags over which the rooms of a Redis Cluster are
// distributed, each with its own subscription connection. It suffices for some tens of masters.
const clusterBuckets = 64

// A channelKind distinguishes rooms with the same name.
type channelKind byte

const (
	plainRoom   channelKind = 'g'
	orderedRoom channelKind = 'o'
	userRoom    channelKind = 'u'
)

// A place is the location of a room in Redis.
type place struct {
	kind    channelKind
	name    string
	bucket  int
	key     string // of the room's stream
	channel string // the key, after the database number unless that is 0, because channels ignore databases
}

// keys builds the names of keys and channels: {tag}kind:name.
type keys struct {
	database string // "" for 0
	buckets  int
	tags     []string // the hash tag of each bucket; the last one is that of the nodes
}

func newKeys(prefix string, database, buckets int) keys {
	k := keys{buckets: buckets}
	if database != 0 {
		k.database = strconv.Itoa(database)
	}
	for bucket := range buckets {
		k.tags = append(k.tags, "{"+onredis.Tag(prefix+":", bucket, buckets)+"}")
	}
	k.tags = append(k.tags, "{"+prefix+":nodes}")
	return k
}

func (k keys) place(kind channelKind, name string) place {
	bucket := onredis.Part(name, k.buckets)
	key := k.tags[bucket] + string(kind) + ":" + name
	return place{kind, name, bucket, key, k.database + key}
}

// receipt is the key of the number of the last publishing command of a node.
func (k keys) receipt(bucket int, node string) string { return k.tags[bucket] + "receipt:" + node }

// users is the key of a hash with the number of nodes of each user in a room.
func (k keys) users(p place) string { return k.tags[p.bucket] + "users:" + p.name }

// members is the key of the set of users that a node has in a room.
func (k keys) members(p place, node string) string {
	return k.tags[p.bucket] + "members:" + node + ":" + p.name
}

// joined is the key of the set of rooms in which a node has users.
func (k keys) joined(bucket int, node string) string { return k.tags[bucket] + "joined:" + node }

// tombstone is the key that marks a node as dead: it must not add anything any more.
func (k keys) tombstone(bucket int, node string) string { return k.tags[bucket] + "dead:" + node }

// Keys for all nodes: their leases, the nodes that are being reaped, and claimed names.
func (k keys) nodes() string              { return k.tags[k.buckets] + "nodes" }
func (k keys) reaping() string            { return k.tags[k.buckets] + "reaping" }
func (k keys) claims() string             { return k.tags[k.buckets] + "names" }
func (k keys) claimed(node string) string { return k.tags[k.buckets] + "names:" + node }

// counts is the key of the number of names of each node, token of the last token, mark of the proof
// that this Redis was in use, and loss of the time until which, after a data loss, names are
// granted only to their previous owners.
func (k keys) counts() string { return k.tags[k.buckets] + "counts" }
func (k keys) token() string  { return k.tags[k.buckets] + "token" }
func (k keys) mark() string   { return k.tags[k.buckets] + "mark" }
func (k keys) loss() string   { return k.tags[k.buckets] + "loss" }

// checkName returns a *SizeError if a name is empty or too long.
func checkName(what, name string) error {
	if len(name) == 0 || len(name) > MaxName {
		return &SizeError{What: what, Len: len(name), Max: MaxName}
	}
	return nil
}
