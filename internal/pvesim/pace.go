package pvesim

import "time"

// What pieces of work take on a real node, roughly (Options.TimeScale stretches them).
const (
	allocTime = 300 * time.Millisecond
	// sharedAllocTime is for storages over the network.
	sharedAllocTime = 2500 * time.Millisecond
	startTime       = 1500 * time.Millisecond
	stopTime        = 1200 * time.Millisecond
	unpackTime      = 4 * time.Second
)
