// Package scaletest is the test of how the cost of a loop grows: up to a million connections on
// memory, in virtual time. It has an engine of its own, which does for many connections what
// looptest does for few: one loop, and clients that are a few bytes each. docs/scaling.md shows
// what it measures.
package scaletest
