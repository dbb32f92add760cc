package loopmetrics

// LookAtMost changes how many connections of a loop a snapshot looks at.
func (h *Handler) LookAtMost(n int) { h.look.most = n }
