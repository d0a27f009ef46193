package reconcile

import (
	"math/rand/v2"
	"time"
)

// Bounds of the schedule.
const (
	// jitter is the part of a wait that is drawn, so that many clusters of one
	// process, and many processes on one forge, do not move in step.
	jitter = 0.1
	// maxBackoff bounds the wait for a cluster whose cycles break off.
	maxBackoff = 5 * time.Minute
	// stagger bounds the wait before a cluster's first cycle.
	stagger = 2 * time.Second
)

// wait is the time until the next cycle: the poll interval, doubled for every
// cycle in a row that broke off, up to five minutes or the interval itself
// where that is longer. draw is in [0,1) and takes off up to a tenth.
func wait(every time.Duration, failures int, draw float64) time.Duration {
	limit := max(every, maxBackoff)
	d := every
	for ; failures > 0 && d < limit; failures-- {
		d *= 2
	}
	d = min(d, limit)
	return d - time.Duration(draw*jitter*float64(d))
}

// firstWait spreads the first cycles of many clusters.
func firstWait(every time.Duration, draw float64) time.Duration {
	return time.Duration(draw * float64(min(stagger, every/10)))
}

func draw() float64 { return rand.Float64() }
