package limits

import "runtime/debug"

// unknown is what a system that does not tell is taken to have.
const unknown = 4 << 30

// Memory returns how many bytes the process may use: what its control groups (on Linux) and GOMEMLIMIT
// allow, whichever is less. If neither has a limit, that is the physical memory, and set is false. It
// changes nothing.
func Memory() (limit int64, set bool) {
	physical := physical()
	if physical <= 0 {
		physical = unknown
	}
	limit = min(debug.SetMemoryLimit(-1), groups("/"))
	if limit >= physical { // as good as none
		return physical, false
	}
	return max(1, limit), true
}
