// Package timing holds loopwheel's hierarchical timing wheel.
package timing
