// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// RenewerConfig configures a Renewer. CertFile and KeyFile are required.
type RenewerConfig struct {
	// CertFile and KeyFile are those of the host: the identity file, twice, if it is renewed.
	CertFile, KeyFile string
	// Renew asks for a new certificate; nil: this is not done here, and the files are only read.
	Renew func(ctx context.Context, csr []byte, nodes []Node) (*Answer, error)
	// Confirm tells the service that the host has the certificate of its files; nil:
	// nothing is sent. An older service answers with CodeNotFound.
	Confirm func(ctx context.Context) error
	// Nodes are the compute nodes of the host, as far as they are known.
	Nodes func() []Node
	// Jitter is a number in [0,1); rand.Float64 when nil.
	Jitter func() float64
	Logger zerolog.Logger
}

// RenewerStatus is the identity of a host, and how its renewal goes.
type RenewerStatus struct {
	// Host and Nodes are those of the certificate, which the host got at Since.
	Host           string
	Nodes          []string
	Since, Expires time.Time
	// Renews says whether the agent renews it, next at Next.
	Renews bool
	Next   time.Time
	// Error is why the last attempt failed, or why the files cannot be read, "" after a success.
	// Refused says that the service will not renew it until an operator acts.
	// RenewedElsewhere says that it is because another holder of the certificate renewed it.
	Error                     string
	Refused, RenewedElsewhere bool
	// RefusedNodes says which nodes of the host its certificate does not have, and why.
	RefusedNodes []string
	// Succeeded and Failed count attempts.
	Succeeded, Failed int64
}

// Renewer renews the certificate of a host at a third of its life, and confirms it: with the new
// one, at once, so that the one before is of no use, and again from time to time, to learn whether
// it is still the host's. Run owns its goroutine.
type Renewer struct {
	config RenewerConfig

	mu     sync.Mutex
	status RenewerStatus
	read   bool // status has been read from the files
	// Used only by the loop.
	key              string // of the certificate that failures are about
	attempt          int
	renewingForNodes bool // a certificate without nodes was to be renewed at once
	confirm          confirmation
}

// confirmation is how the confirming of a certificate goes.
type confirmation struct {
	next    time.Time
	attempt int  // that failed one after the other
	refused bool // the last one was
}

const (
	// checkInterval is how often the files are checked: a host may join again, or the site renew
	// them.
	checkInterval = time.Minute
	// nodesInterval is how often the drivers are asked for the nodes of a host that has none yet.
	nodesInterval = 5 * time.Second
)

// NewRenewer makes a Renewer. It does nothing yet.
func NewRenewer(c RenewerConfig) *Renewer {
	if c.Jitter == nil {
		c.Jitter = rand.Float64
	}
	if c.Nodes == nil {
		c.Nodes = func() []Node { return nil }
	}
	return &Renewer{config: c}
}

// Status is the state of the renewal. It reads the files if Run has not yet.
func (r *Renewer) Status() RenewerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.read {
		r.refresh()
	}
	return r.status
}

// Run renews the certificate until the context ends.
func (r *Renewer) Run(ctx context.Context) {
	for wait.For(ctx, r.step(ctx)) {
	}
}

// step looks at the files, renews or confirms the certificate if it is time, and says how long to
// wait.
func (r *Renewer) step(ctx context.Context) time.Duration {
	r.mu.Lock()
	r.refresh()
	now := time.Now()
	due := r.status.Renews && !now.Before(r.status.Next)
	confirm := r.confirms() && !now.Before(r.confirm.next)
	r.mu.Unlock()
	if confirm && !due {
		err := r.config.Confirm(ctx)
		if ctx.Err() != nil {
			return 0
		}
		r.mu.Lock()
		r.recordConfirmation(err)
		r.mu.Unlock()
	}
	if due {
		err := r.renew(ctx)
		if ctx.Err() != nil {
			return 0
		}
		r.mu.Lock()
		r.recordOutcome(err)
		r.mu.Unlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.status.Renews {
		return checkInterval
	}
	pause := checkInterval
	if len(r.status.Nodes) == 0 && !r.renewingForNodes {
		pause = nodesInterval
	}
	next := r.status.Next
	if r.confirms() && r.confirm.next.Before(next) {
		next = r.confirm.next
	}
	return min(max(time.Until(next), time.Millisecond), pause)
}

// confirms reports whether there is a certificate to be confirmed. r.mu is held.
func (r *Renewer) confirms() bool { return r.status.Renews && r.config.Confirm != nil }

// refresh reads the files. r.mu is held.
func (r *Renewer) refresh() {
	id, err := ReadIdentity(r.config.CertFile, r.config.KeyFile)
	r.read = true
	if err != nil {
		if text := err.Error(); r.status.Error != text {
			r.config.Logger.Error().Err(err).
				Msg("The certificate of this host cannot be read. Cell and Placement do not let the agent in " +
					"until it can.")
			r.status = RenewerStatus{Error: text, Succeeded: r.status.Succeeded, Failed: r.status.Failed}
		}
		r.key = ""
		return
	}
	if id.Key+id.Expires.String() != r.key { // the first, a renewed one, or one that others wrote
		first := r.key == ""
		r.key, r.attempt, r.renewingForNodes = id.Key+id.Expires.String(), 0, false
		r.confirm = confirmation{next: time.Now()}
		if first { // agents that start together do not ask together
			r.confirm.next = r.confirm.next.Add(time.Duration(r.config.Jitter() * float64(checkInterval)))
		}
		third := id.Expires.Sub(id.Since) / 3
		since := id.Since
		if now := time.Now(); since.After(now) { // issued by a clock that was ahead: no server accepts it until then
			since = now
		}
		r.status = RenewerStatus{
			Host:         id.Name,
			Nodes:        id.Nodes,
			Since:        id.Since,
			Expires:      id.Expires,
			Renews:       r.config.Renew != nil,
			Next:         since.Add(third - time.Duration(r.config.Jitter()*float64(third)/10)),
			RefusedNodes: r.status.RefusedNodes,
			Succeeded:    r.status.Succeeded,
			Failed:       r.status.Failed,
		}
		if r.status.Renews {
			r.config.Logger.Info().Str("host", id.Name).Strs("nodes", id.Nodes).Time("expires", id.Expires).
				Time("renewal", r.status.Next).Msg("The certificate of this host.")
		}
	}
	// A host that joins before its first start does not know its nodes yet.
	if len(id.Nodes) == 0 && !r.renewingForNodes && r.status.Renews && len(r.config.Nodes()) > 0 {
		r.renewingForNodes, r.status.Next = true, time.Now()
	}
}

// renew gets a new certificate, with a new key, and writes it.
func (r *Renewer) renew(ctx context.Context) error {
	r.mu.Lock()
	host := r.status.Host
	r.mu.Unlock()
	key, keyPEM, err := pki.NewKey()
	if err != nil {
		return err
	}
	csr, err := pki.NewRequest(key, host)
	if err != nil {
		return err
	}
	answer, err := r.config.Renew(ctx, csr, r.config.Nodes())
	if err != nil {
		return err
	}
	content, id, err := NewIdentity(keyPEM, []byte(answer.Certificate), time.Now())
	if err != nil {
		return err
	}
	if id.Name != host {
		return fmt.Errorf("the new certificate is for host %.300q, not for %s", id.Name, host)
	}
	if err := replaceIdentity(r.config.CertFile, content); err != nil {
		return fmt.Errorf("write the new certificate: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(answer.Refused, r.status.RefusedNodes) && len(answer.Refused) > 0 {
		r.config.Logger.Warn().Strs("refused", answer.Refused).
			Msg("Compute nodes of this host are not in its certificate.")
	}
	r.status.RefusedNodes = answer.Refused
	return nil
}

// recordOutcome records how an attempt ended, and when the next one is. r.mu is held.
func (r *Renewer) recordOutcome(err error) {
	if err == nil {
		r.status.Succeeded++
		r.refresh()
		return
	}
	r.status.Failed++
	final := r.recordFailure(err)
	wait, maxWait := r.pause(r.attempt)
	if final {
		wait = maxWait
	}
	r.attempt++
	r.status.Next = time.Now().Add(wait + time.Duration(r.config.Jitter()*float64(wait)/5))
}

// recordFailure records why the certificate is not renewed, and whether that stays so. r.mu is
// held.
func (r *Renewer) recordFailure(err error) (final bool) {
	refused := new(Refusal)
	final = errors.As(err, &refused) && refused.Final()
	if r.status.Error != err.Error() {
		r.config.Logger.Warn().Err(err).Time("expires", r.status.Expires).Bool("refused", final).
			Msg("The certificate of this host was not renewed. The agent retries; guests are not affected.")
	}
	r.status.Error, r.status.Refused, r.status.RenewedElsewhere = err.Error(), final,
		final && refused.RenewedElsewhere()
	return final
}

// pause is how long to wait after a number of attempts that failed, and after a refusal.
func (r *Renewer) pause(attempt int) (wait, maxWait time.Duration) {
	life := r.status.Expires.Sub(r.status.Since)
	least := min(max(life/500, time.Second), time.Minute)
	maxWait = max(life/24, least)
	if attempt >= 16 {
		return maxWait, maxWait
	}
	return min(least<<attempt, maxWait), maxWait
}

// recordConfirmation notes how a confirmation ended, and when the next one is. r.mu is held.
func (r *Renewer) recordConfirmation(err error) {
	now, c := time.Now(), &r.confirm
	refused := new(Refusal)
	_, again := r.pause(0) // an hour, of a certificate of a day
	answered := err == nil || errors.As(err, &refused) && refused.Code == CodeNotFound
	switch {
	case answered && c.refused: // only what a confirmation has found out
		r.status.Error, r.status.Refused, r.status.RenewedElsewhere = "", false, false
		fallthrough
	case answered:
		if c.attempt > 0 {
			r.config.Logger.Info().Msg("The certificate of this host is confirmed.")
		}
		*c = confirmation{next: now.Add(again)}
	case refused.Final() && refused.Status == http.StatusForbidden:
		r.recordFailure(err)
		*c = confirmation{next: now.Add(again), attempt: c.attempt + 1, refused: true}
	default:
		if c.attempt == 0 {
			r.config.Logger.Warn().Err(err).
				Msg("The certificate of this host is not confirmed: until it is, a copy of the one before can be " +
					"renewed. The agent retries.")
		}
		wait, _ := r.pause(c.attempt)
		c.attempt++
		c.next = now.Add(wait)
	}
	c.next = c.next.Add(time.Duration(r.config.Jitter() * float64(c.next.Sub(now)) / 5))
}
