package loopmetrics

// LookAtMost changes how many connections of a loop a snapshot looks at.
func (h *Handler) LookAtMost(n int) { h.look.most = n }

// GoodFor is how long an answer is good for that took so long to make.
var GoodFor = goodFor
