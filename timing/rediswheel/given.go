package rediswheel

import "strings"

// A given is a task that was claimed.
type given struct {
	id     string
	token  string
	due    int64
	record string
	state
}

// readGiven takes the tasks from claim.lua's answer: a batch, as batch.lua has it, and the records.
func readGiven(answer any) []given {
	fields, _ := answer.([]any)
	if len(fields) < 12 {
		return nil
	}
	token, _ := fields[9].(string)
	text, _ := fields[10].(string)
	records := list(fields[11])
	_, text, _ = strings.Cut(text, "\n") // the lease
	ids, text, _ := strings.Cut(text, "\n\n")
	dues, text, _ := strings.Cut(text, "\n\n")
	all := make([]given, len(records))
	for i := range all {
		var id, due string
		id, ids, _ = strings.Cut(ids, "\n")
		due, dues, _ = strings.Cut(dues, "\n")
		at := toScore(due)
		all[i] = given{id, token, at, records[i], state{deliveries: 1, occurrence: at}}
		if rest, ok := strings.CutPrefix(text, id+"\n"); ok { // a state, which are in the same order
			st, rest, _ := strings.Cut(rest, "\n")
			all[i].state, text = parseState(st), rest
		}
	}
	return all
}
