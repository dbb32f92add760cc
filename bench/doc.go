// Package bench is the root of a module of its own, so that the peers it measures stay out of
// loopwheel's go.mod.
package bench
