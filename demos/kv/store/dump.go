package store

// chunk is how many elements of a collection one command of a dump has.
const chunk = 64

// Dump writes commands that make the keys anew.
func (db *DB) Dump(write func(args ...[]byte) error) error {
	for e := range db.list.all() {
		if err := e.dump(write); err != nil {
			return err
		}
	}
	return nil
}

func (e *entry) dump(write func(args ...[]byte) error) error {
	key := []byte(e.name)
	if e.val == nil && e.exp != nil {
		return write([]byte("SET"), key, e.str, []byte("PXAT"), num(e.exp.due))
	}
	if e.val == nil {
		return write([]byte("SET"), key, e.str)
	}
	if err := e.dumpElements(key, write); err != nil || e.exp == nil {
		return err
	}
	return write([]byte("PEXPIREAT"), key, num(e.exp.due))
}

func (e *entry) dumpElements(key []byte, write func(args ...[]byte) error) error {
	c := chunks{key: key, write: write}
	switch v := e.val.(type) {
	case *list:
		c.name = "RPUSH"
		for i := range v.Len() {
			c.add([]byte(v.At(i)))
		}
	case *hash:
		c.name = "HSET"
		for f := range v.list.all() {
			c.add([]byte(f.key), []byte(f.val))
		}
	case *set:
		c.name = "SADD"
		for m := range v.list.all() {
			c.add([]byte(m.key))
		}
	case *zset:
		c.name = "ZADD"
		for m := range v.scores.list.all() {
			c.add(appendScore(m.val), []byte(m.key))
		}
	}
	return c.flush()
}

// chunks writes many elements as commands of a few.
type chunks struct {
	name  string
	key   []byte
	write func(args ...[]byte) error
	args  [][]byte
	n     int
	err   error
}

func (c *chunks) add(parts ...[]byte) {
	if c.args == nil {
		c.args = append(c.args, []byte(c.name), c.key)
	}
	c.args = append(c.args, parts...)
	if c.n++; c.n == chunk {
		_ = c.flush()
	}
}

func (c *chunks) flush() error {
	if c.n > 0 && c.err == nil {
		c.err = c.write(c.args...)
	}
	c.args, c.n = nil, 0
	return c.err
}
