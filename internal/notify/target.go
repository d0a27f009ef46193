package notify

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/time/rate"

	"github.com/proxops/proxops/internal/repo"
	"github.com/proxops/proxops/internal/secret"
)

// pace is how messages to one target are spread.
type pace struct {
	gather time.Duration // events that come together make one message
	every  time.Duration // between two messages, once burst is used up
	burst  int
	send   time.Duration // bounds one try
	retry  time.Duration // first pause after a failed try; it doubles
	giveUp time.Duration // how long one message is tried
	stuck  time.Duration // after which a service that has not answered is opened anew
	final  time.Duration // for what is left when the daemon stops
}

func defaultPace() pace {
	return pace{gather: 3 * time.Second, every: time.Minute, burst: 5, send: 30 * time.Second, retry: 5 * time.Second, giveUp: 15 * time.Minute,
		stuck: time.Hour, final: 5 * time.Second}
}

// maxPending is how many events wait for one target; of further ones only the
// number is kept.
const maxPending = 200

// target is one entry of notifications, with its queue and the goroutine that
// empties it.
type target struct {
	log     *slog.Logger
	pace    pace
	resolve func(key string) (secret.Text, error)
	wake    chan struct{}
	stop    context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	cfg     repo.Notification
	pending []Event
	counted map[Kind]int
	lost    int

	url     secret.Text // of service
	service *service
	fault   string // the last one logged, so that it is logged once
}

func newTarget(cfg repo.Notification, o Options, p pace) *target {
	ctx, stop := context.WithCancel(context.Background())
	t := &target{log: o.Log.With("notification", cfg.Name), pace: p, resolve: o.Resolve, wake: make(chan struct{}, 1), stop: stop,
		done: make(chan struct{}), cfg: cfg}
	go t.run(ctx)
	return t
}

func (t *target) config() repo.Notification {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg
}

func (t *target) configure(cfg repo.Notification) {
	t.mu.Lock()
	defer t.mu.Unlock()
	moved := t.cfg.URL != cfg.URL
	if t.cfg = cfg; moved {
		t.rouse()
	}
}

func (t *target) rouse() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// offer queues those of the events that the target wants. It never waits.
func (t *target) offer(events []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range events {
		if len(t.cfg.Events) > 0 && !slices.Contains(t.cfg.Events, string(e.Event)) ||
			len(t.cfg.Clusters) > 0 && !slices.Contains(t.cfg.Clusters, e.Cluster) {
			continue
		}
		if len(t.pending) >= maxPending {
			if t.counted == nil {
				t.counted = map[Kind]int{}
			}
			t.counted[e.Event]++
			continue
		}
		t.pending = append(t.pending, e)
	}
	if len(t.pending) > 0 {
		t.rouse()
	}
}

// batch is what one message is made of.
type batch struct {
	Message
	all     []Event
	counted map[Kind]int
}

func (b batch) events() int {
	n := len(b.all)
	for _, c := range b.counted {
		n += c
	}
	return n
}

// take empties the queue into a message.
func (t *target) take() (batch, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := batch{compose(t.pending, t.counted, t.lost), t.pending, t.counted}
	t.pending, t.counted = nil, nil
	return b, len(b.all) > 0
}

// untake puts a batch back.
func (t *target) untake(b batch) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending = append(slices.Clone(b.all), t.pending...)
	for k, n := range b.counted {
		if t.counted == nil {
			t.counted = map[Kind]int{}
		}
		t.counted[k] += n
	}
}

// run delivers until ctx ends, and then what is left, once.
func (t *target) run(ctx context.Context) {
	defer close(t.done)
	limit := rate.NewLimiter(rate.Every(t.pace.every), t.pace.burst)
	t.check()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-t.wake:
		}
		sleep(ctx, t.pace.gather)
		if limit.Wait(ctx) != nil {
			break
		}
		if b, ok := t.take(); ok {
			t.deliver(ctx, b)
		} else {
			t.check()
		}
	}
	if b, ok := t.take(); ok {
		last, cancel := context.WithTimeout(context.Background(), t.pace.final)
		defer cancel()
		if err := t.try(last, b.Message); err != nil {
			t.log.Warn("notifications were lost at the end", "events", b.events(), "err", err)
		}
	}
}

// check tells of a target that nothing could be sent to before there is
// something to send.
func (t *target) check() {
	if err := t.ready(); err != nil {
		t.fault = err.Error()
		t.log.Error("nothing can be sent to this target", "err", err)
	}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// deliver tries a message again and again, for as long as it is worth it. When
// ctx ends the message goes back into the queue.
func (t *target) deliver(ctx context.Context, b batch) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.Multiplier, pause.MaxInterval = t.pace.retry, 2, 2*time.Minute
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := t.try(ctx, b.Message)
		if err != nil && ctx.Err() == nil && err.Error() != t.fault {
			t.fault = err.Error()
			t.log.Warn("a notification could not be delivered; it is tried again", "err", err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pause), backoff.WithMaxElapsedTime(t.pace.giveUp))
	switch {
	case err == nil:
		if t.fault != "" {
			t.fault = ""
			t.log.Info("notifications are delivered again")
		}
		t.lose(-b.Lost)
	case ctx.Err() != nil:
		t.untake(b)
	default:
		t.log.Error("a notification was given up", "events", b.events(), "err", err)
		t.lose(b.events())
	}
}

func (t *target) lose(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lost += n
}

// ready opens the service. The URL is looked up each time, so that a changed
// secret is used at once. A service that never answers a message would keep the
// library, and with it all further messages, for as long as its connection
// stands: after a while it is left to that, and opened anew.
func (t *target) ready() error {
	key := t.config().URL
	u, err := t.resolve(key)
	if err != nil {
		return err
	}
	if t.service == nil || u.Reveal() != t.url.Reveal() || t.service.silent() > t.pace.stuck {
		s, err := open(u)
		if err != nil {
			return fmt.Errorf("secrets.%s: %w", key, err)
		}
		t.service, t.url = s, u
	}
	return nil
}

// try delivers a message once.
func (t *target) try(ctx context.Context, m Message) error {
	if err := t.ready(); err != nil {
		return err
	}
	text, err := m.render(t.config().Template)
	if err != nil {
		t.log.Warn("the template is at fault; the built-in text is sent", "err", plain(err.Error()))
	}
	ctx, cancel := context.WithTimeout(ctx, t.pace.send)
	defer cancel()
	return t.service.send(ctx, m.Title, text)
}
