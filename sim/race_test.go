//go:build race

package sim

// raced says that the race detector is on. A run has one goroutine, so that it finds
// little here, and everything takes ten times as long.
const raced = true
