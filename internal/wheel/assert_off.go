//go:build !race && !timingassert

package wheel

const asserting = false
