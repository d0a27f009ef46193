package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// keepAlive is how often a silent event stream says that it is there.
const keepAlive = 20 * time.Second

// events streams changes as server-sent events: the page's script then asks
// for the page anew. Changes that come quickly are merged by the store.
func (d *Dashboard) events(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	if err := rc.SetWriteDeadline(time.Time{}); err != nil {
		d.log.Debug("event stream without deadline control", "err", err)
	}
	w.Header().Set("Content-Type", "text/event-stream")
	sub := d.store.Subscribe()
	defer sub.Close()
	fmt.Fprintf(w, "retry: 3000\nevent: hello\ndata: {\"version\":%d}\n\n", d.store.Snapshot().Version)
	if rc.Flush() != nil {
		return
	}
	for {
		ctx, cancel := context.WithTimeout(r.Context(), keepAlive)
		c, err := sub.Next(ctx)
		cancel()
		switch {
		case r.Context().Err() != nil:
			return
		case err != nil:
			fmt.Fprint(w, ": still here\n\n")
		default:
			data, _ := json.Marshal(struct {
				Version  uint64   `json:"version"`
				Clusters []string `json:"clusters"`
			}{c.Version, append([]string{}, c.Clusters...)}) // never null
			fmt.Fprintf(w, "event: change\ndata: %s\n\n", data)
		}
		if rc.Flush() != nil {
			return
		}
	}
}
