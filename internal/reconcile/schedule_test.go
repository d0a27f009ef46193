package reconcile

import (
	"testing"
	"time"
)

func TestWait(t *testing.T) {
	for _, c := range []struct {
		every    time.Duration
		failures int
		want     time.Duration
	}{
		{30 * time.Second, 0, 30 * time.Second},
		{30 * time.Second, 1, time.Minute},
		{30 * time.Second, 3, 4 * time.Minute},
		{30 * time.Second, 4, 5 * time.Minute},
		{30 * time.Second, 1 << 30, 5 * time.Minute},
		{time.Hour, 0, time.Hour},
		{time.Hour, 5, time.Hour}, // a long interval is never made longer
	} {
		if got := wait(c.every, c.failures, 0); got != c.want {
			t.Errorf("every %s after %d failures: %s, want %s", c.every, c.failures, got, c.want)
		}
		low := wait(c.every, c.failures, 0.999999)
		if low >= c.want || low < c.want*9/10 {
			t.Errorf("every %s after %d failures: drawn down to %s", c.every, c.failures, low)
		}
	}
	if d := firstWait(time.Hour, 0.999); d > stagger {
		t.Error(d)
	}
	if d := firstWait(time.Second, 0.999); d > 100*time.Millisecond {
		t.Error(d)
	}
}
