// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Options configure a log.
type Options struct {
	// File is the path of the file; "": none.
	File string
	// Journal is the socket of systemd's journal; "": none.
	Journal string
	// MaxSize is how large the file may become until it is rotated, in bytes; 100 MiB when zero.
	// Keep is how many rotated files are kept.
	MaxSize int64
	Keep    int
	// Sync makes each record durable before it counts as written, at the cost of an fsync.
	Sync bool
	// Lazy makes the file with the first record, for commands that may write none.
	Lazy bool
	// Required has Refusal return an error while records cannot be written.
	Required bool
	Logger   zerolog.Logger
	// Now is the clock; time.Now when nil.
	Now func() time.Time
}

const (
	// queueLength is how many records wait for the goroutine that writes. Each request waits for
	// its own, so that more are only there if their clients left.
	queueLength = 1024
	// maxBatch is how many records one write has.
	maxBatch = 128
	// maxPending is how many bytes of records are kept that could not be written.
	maxPending = 4 << 20
	// retryInterval is how long after a failure writing is tried again.
	retryInterval = time.Second
	// waitAtMost is how long a request waits for its record, if the log is not required; also an
	// action for its intent. For a required log, actions wait for intentAtMost, and are refused
	// then.
	waitAtMost   = time.Second
	intentAtMost = 10 * time.Second
	// defaultMaxSize is Options.MaxSize.
	defaultMaxSize = 100 << 20
)

// Log writes records. A nil Log keeps none. It is safe for concurrent use.
type Log struct {
	opts    Options
	service string
	*writer
}

// writer is what the logs of several services of a process share.
type writer struct {
	file     *file    // nil for none
	journal  *journal // nil for none
	limiter  *osapi.LogLimiter
	metrics  *Metrics
	problem  atomic.Pointer[error] // why the last write failed; nil
	hung     atomic.Bool           // an action waited too long for its intent, since the last write
	queue    chan entry
	closing  chan struct{}
	close    sync.Once
	done     chan struct{}
	closeErr error

	// Of the goroutine: lines that could not be written to the file, and how many.
	pending      []byte
	pendingCount int
}

var errQueueFull = errors.New("the queue is full: the disk or the journal does not answer")

type entry struct {
	record func() Record
	done   chan struct{}
	intent *Intent // if it is the record of one; nil
}

// Open opens a log and starts its goroutine. It fails if the file cannot be written to and the log
// is required; otherwise that is logged, and tried again. Without a file and a journal it is nil.
func Open(opts Options) (*Log, error) {
	if opts.File == "" && opts.Journal == "" {
		return nil, nil // a nil Log is a log that keeps nothing
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MaxSize <= 0 {
		opts.MaxSize = defaultMaxSize
	}
	w := &writer{
		limiter: osapi.NewLogLimiter(time.Minute, opts.Now), metrics: newMetrics(),
		queue: make(chan entry, queueLength), closing: make(chan struct{}), done: make(chan struct{}),
	}
	l := &Log{opts: opts, writer: w}
	if opts.Journal != "" {
		w.journal = &journal{socket: opts.Journal}
	}
	if opts.File != "" {
		w.file = &file{path: opts.File, maxSize: opts.MaxSize, keep: opts.Keep, sync: opts.Sync}
		if err := w.check(opts.Lazy); err != nil {
			if opts.Required {
				return nil, fmt.Errorf("open the audit log %s, which [audit] required asks for: %w", opts.File, err)
			}
			l.failed("file", err)
		}
	}
	go l.run()
	return l, nil
}

// check finds out whether the file can be written to.
func (w *writer) check(lazy bool) error {
	if lazy {
		return nil
	}
	return w.file.write(nil, true)
}

// ForService is the log for the records of a service, such as "placement". Close it once, with any
// of its services.
func (l *Log) ForService(service string) *Log {
	if l == nil {
		return nil
	}
	return &Log{opts: l.opts, service: service, writer: l.writer}
}

// Required reports whether nothing may be changed without a record.
func (l *Log) Required() bool { return l != nil && l.opts.Required }

// Refusal is why writes are to be refused: the log is required and cannot be written. Otherwise it
// is nil.
func (l *Log) Refusal() error {
	if l == nil || !l.opts.Required {
		return nil
	}
	return l.Problem()
}

// Problem is why the last record could not be written; nil if all are.
func (l *Log) Problem() error {
	if l == nil {
		return nil
	}
	if p := l.problem.Load(); p != nil {
		return *p
	}
	return nil
}

// Write writes a record, and returns when that is done, has failed, or the context ends. Nothing
// is written without changes.
func (l *Log) Write(ctx context.Context, r Record) {
	if l == nil || len(r.Changes) == 0 {
		return
	}
	l.Wait(ctx, l.Enqueue(func() Record { return r }))
}

// Enqueue has a record written that is made when it is next, and returns a channel that is
// closed then. Records are written in the order of the calls. While the queue is full a required
// log makes its callers wait, and another one loses the record.
func (l *Log) Enqueue(record func() Record) <-chan struct{} {
	e := entry{done: make(chan struct{})}
	if l == nil {
		close(e.done)
		return e.done
	}
	e.record = func() Record { return l.complete(record(), Done) }
	select {
	case l.queue <- e:
		return e.done
	default:
	}
	if l.opts.Required {
		select {
		case l.queue <- e:
			return e.done
		case <-l.closing:
		}
	}
	l.countLost("queue", 1, errQueueFull)
	close(e.done)
	return e.done
}

// complete adds what a record does not say itself.
func (l *Log) complete(r Record, outcome string) Record {
	if r.Service == "" {
		r.Service = l.service
	}
	if r.Time.IsZero() {
		r.Time = l.opts.Now().UTC().Truncate(time.Microsecond)
	}
	if r.Outcome == "" {
		r.Outcome = outcome
	}
	return r
}

// Wait waits for a record of Enqueue, until the context ends. If the log is not required it waits
// at most a second.
func (l *Log) Wait(ctx context.Context, written <-chan struct{}) {
	if l == nil || written == nil {
		return
	}
	select {
	case <-written:
		return
	default:
	}
	var over <-chan time.Time
	if !l.opts.Required {
		timer := time.NewTimer(waitAtMost)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-written:
	case <-over:
	case <-ctx.Done():
	case <-l.done:
	}
}

// Close writes what is queued, and closes the log. Records that cannot be written are lost, and the
// error says how many.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.close.Do(func() { close(l.closing) })
	<-l.done
	return l.closeErr
}

// run is the goroutine that writes.
func (l *Log) run() {
	defer close(l.done)
	for {
		var retry <-chan time.Time
		var timer *time.Timer
		if l.Problem() != nil {
			timer = time.NewTimer(retryInterval)
			retry = timer.C
		}
		select {
		case e := <-l.queue:
			l.put(l.collect(e))
		case <-retry:
			l.put(nil)
		case <-l.closing:
			l.drain()
			return
		}
		if timer != nil {
			timer.Stop()
		}
	}
}

// drain writes what is queued when the log is closed.
func (l *Log) drain() {
	for {
		select {
		case e := <-l.queue:
			l.put(l.collect(e))
			continue
		default:
		}
		break
	}
	if len(l.pending) > 0 {
		l.put(nil)
	}
	if n := l.pendingCount; n > 0 {
		err := l.Problem()
		l.countLost("file", n, err)
		l.closeErr = fmt.Errorf("%d records of the audit log %s are lost: %w", n, l.opts.File, err)
	}
	if l.file != nil {
		l.closeErr = errors.Join(l.closeErr, l.file.close())
	}
	if l.journal != nil {
		l.journal.close()
	}
}

// collect takes what is queued, without waiting for more.
func (l *Log) collect(first entry) []entry {
	batch := []entry{first}
	for len(batch) < maxBatch {
		select {
		case e := <-l.queue:
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// put writes the records of a batch, after those that are pending. Without a batch it finds out
// whether records can be written again.
func (l *Log) put(batch []entry) {
	var journalErr error
	var lines, kept []byte // of all, and of those that are tried again
	count, sync := 0, false
	for _, e := range batch {
		r := e.record()
		if len(r.Changes) == 0 && (r.ID == "" || r.Outcome != NotDone) {
			if e.intent != nil {
				e.intent.empty = true
			}
			continue // it changes nothing
		}
		// The intent is on the disk already, with the same changes.
		sync = sync || r.ID == "" || e.intent != nil
		encoded, records := r.lines()
		for i, line := range encoded {
			if l.file != nil {
				lines = append(lines, line...)
			}
			if e.intent == nil {
				count++
				kept = append(kept, line...)
			}
			// The file has the intents, unless the journal must be known to answer.
			if l.journal == nil || e.intent != nil && l.file != nil && !l.opts.Required {
				continue
			}
			if err := l.journal.send(&records[i], line); err != nil {
				journalErr = err
				l.countLost("journal", 1, err)
			} else if e.intent == nil {
				l.metrics.count("journal", true, 1)
			}
		}
	}
	if l.journal != nil && len(batch) == 0 {
		journalErr = l.journal.connect()
	}
	var fileErr error
	if l.file != nil {
		fileErr = l.putFile(lines, kept, count, sync)
	}
	err := errors.Join(fileErr, journalErr)
	if err != nil {
		l.problem.Store(&err)
	} else if l.problem.Swap(nil) != nil {
		l.opts.Logger.Info().Str("file", l.opts.File).Msg("The audit log can be written to again.")
	}
	l.hung.Store(false)
	for _, e := range batch {
		if e.intent != nil {
			e.intent.err, e.intent.written = err, !e.intent.empty && fileErr == nil &&
				(l.file != nil || journalErr == nil)
		}
		close(e.done)
	}
}

// putFile writes what is pending, and lines. If that fails, kept is pending as well, which are the
// lines of count records.
func (l *Log) putFile(lines, kept []byte, count int, sync bool) error {
	total := l.pendingCount + count
	err := l.file.write(append(l.pending, lines...), sync || len(l.pending) > 0)
	if err == nil {
		l.pending, l.pendingCount = nil, 0
		l.metrics.count("file", true, total)
		if why := l.file.unrotated; why != nil && l.limiter.Allow("rotate") {
			l.opts.Logger.Warn().Err(why).Str("file", l.opts.File).
				Msg("The audit log cannot be rotated, so its file grows beyond [audit] max_size. Let the user of " +
					"the service rename files in its directory.")
		}
		return nil
	}
	err = fmt.Errorf("write to the audit log %s: %w", l.opts.File, err)
	l.failed("file", err)
	if len(l.pending)+len(kept) <= maxPending {
		l.pending, l.pendingCount = append(l.pending, kept...), total
	} else {
		l.countLost("file", count, err)
	}
	return err
}

// failed logs that records cannot be written now.
func (l *Log) failed(destination string, err error) {
	if !l.limiter.Allow(destination) {
		return
	}
	effect := "Writes go on. Up to 4 MiB of records are kept in memory and written when that is possible again; " +
		"then records are lost."
	if l.opts.Required {
		effect = "Writes are refused with 503 until it can be written to, because of [audit] required."
	}
	l.opts.Logger.Error().Err(err).Str("file", l.opts.File).
		Msg("The audit log cannot be written to. " + effect + " Follow the error. Logged at most once a minute.")
}

// countLost counts records that could not be written.
func (l *Log) countLost(destination string, n int, err error) {
	l.metrics.count(destination, false, n)
	if l.limiter.Allow("lost " + destination) {
		l.opts.Logger.Error().Err(err).Str("destination", destination).
			Msg("Records of the audit log are lost; compute_agent_audit_records_total{outcome=\"lost\"} counts " +
				"them. Logged at most once a minute.")
	}
}

// Metrics count the records of a log.
type Metrics struct{ records *prometheus.CounterVec }

func newMetrics() *Metrics {
	m := &Metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "compute_agent_audit_records_total",
		Help: "Records of the audit log, by destination (file, journal, or the queue before them) and outcome: " +
			"written or lost. Only with an audit log.",
	}, []string{"destination", "outcome"})}
	for _, destination := range []string{"file", "journal", "queue"} {
		m.records.WithLabelValues(destination, "lost")
		if destination != "queue" {
			m.records.WithLabelValues(destination, "written")
		}
	}
	return m
}

func (m *Metrics) count(destination string, written bool, n int) {
	outcome := "lost"
	if written {
		outcome = "written"
	}
	m.records.WithLabelValues(destination, outcome).Add(float64(n))
}

// Collector is what Prometheus collects of a log; nil of none.
func (l *Log) Collector() prometheus.Collector {
	if l == nil {
		return nil
	}
	return l.metrics.records
}
