package pvesim

import (
	"slices"
	"time"
)

// RequestEntry is a call that the world has answered.
type RequestEntry struct {
	Time   time.Time
	Took   time.Duration
	Who    string
	Method string
	// Path is the API path without /api2/json, decoded.
	Path   string
	Params Params
	Status int
}

type requestLog struct {
	keep int
	list []*RequestEntry
}

func (l *requestLog) add(e *RequestEntry) {
	if len(l.list) >= 2*l.keep {
		l.list = slices.Clone(l.list[l.keep:])
	}
	l.list = append(l.list, e)
}

// Requests returns the calls answered so far (at least the last Options.KeepRequests), oldest first.
func (w *World) Requests() []RequestEntry {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]RequestEntry, len(w.log.list))
	for i, e := range w.log.list {
		out[i] = *e
	}
	return out
}

// ForgetRequests empties the request log.
func (w *World) ForgetRequests() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.list = nil
}
