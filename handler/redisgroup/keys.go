package redisgroup

import (
	"strconv"

	"github.com/loopwheel/loopwheel/internal/onredis"
)

// clusterBuckets is into how many hash tags the rooms of a Redis Cluster are divided, each with a
// connection for its subscriptions: enough for some tens of masters.
const clusterBuckets = 64

// A channelKind tells apart rooms that have the same name.
type channelKind byte

const (
	plainRoom   channelKind = 'g'
	orderedRoom channelKind = 'o'
	userRoom    channelKind = 'u'
)

// A place is where a room is in Redis.
type place struct {
	kind    channelKind
	name    string
	bucket  int
	key     string // of its stream
	channel string // the key, after the number of the database unless that is 0: all share channels
}

// keys makes names of keys and channels: {tag}kind:name.
type keys struct {
	database string // "" for 0
	buckets  int
	tags     []string // by bucket, the last one that of the nodes: what its keys share
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

// receipt holds the number of the last command of a node that has published messages.
func (k keys) receipt(bucket int, node string) string { return k.tags[bucket] + "receipt:" + node }

// users holds, for each user in a room, on how many nodes it is.
func (k keys) users(p place) string { return k.tags[p.bucket] + "users:" + p.name }

// members is the set of users that a node has in a room.
func (k keys) members(p place, node string) string {
	return k.tags[p.bucket] + "members:" + node + ":" + p.name
}

// joined is the set of rooms in which a node has users.
func (k keys) joined(bucket int, node string) string { return k.tags[bucket] + "joined:" + node }

// tombstone says that a node was declared dead: it must not add anything any more.
func (k keys) tombstone(bucket int, node string) string { return k.tags[bucket] + "dead:" + node }

// Keys of all nodes: their leases, those that are being reaped, and names that are claimed.
func (k keys) nodes() string              { return k.tags[k.buckets] + "nodes" }
func (k keys) reaping() string            { return k.tags[k.buckets] + "reaping" }
func (k keys) claims() string             { return k.tags[k.buckets] + "names" }
func (k keys) claimed(node string) string { return k.tags[k.buckets] + "names:" + node }

// counts holds how many names each node has, token the last one that was given, mark that this
// Redis was used, and loss until when it gives names only to those who had them: it has lost all.
func (k keys) counts() string { return k.tags[k.buckets] + "counts" }
func (k keys) token() string  { return k.tags[k.buckets] + "token" }
func (k keys) mark() string   { return k.tags[k.buckets] + "mark" }
func (k keys) loss() string   { return k.tags[k.buckets] + "loss" }

// checkName returns why a name will not do.
func checkName(what, name string) error {
	if len(name) == 0 || len(name) > MaxName {
		return &SizeError{What: what, Len: len(name), Max: MaxName}
	}
	return nil
}
