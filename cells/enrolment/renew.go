// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"context"
	"crypto/x509"
	"errors"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// holder is the client of a request: a host with a certificate, and the digest of its key.
type holder struct {
	id      pki.Identity
	key     string
	address string
	now     time.Time
}

// limiterKey is the key under which limiters count what a holder does.
func (h holder) limiterKey() string { return network(h.address) + " " + h.id.Name + " " + h.key }

// renew answers POST /v1/renew.
func (x *exchange) renew() (any, error) { return x.byHolder((*exchange).renewAnswer) }

// confirm answers POST /v1/confirm.
func (x *exchange) confirm() (any, error) { return x.byHolder((*exchange).confirmAnswer) }

// byHolder answers a request of a host with a certificate. Refusals are logged, and bounded for
// each key from each network. Malformed requests do not count, so the holder of a copied
// certificate cannot use up what its host may do while both have the same key.
func (x *exchange) byHolder(answer func(*exchange, holder) (any, error)) (any, error) {
	h := holder{now: x.config.Now(), address: osapi.ClientAddress(x.R)}
	var err error
	if h.key, h.id, err = x.client(h.now); err != nil {
		return nil, err
	}
	x.Caller.User, x.Caller.Host = h.id.Name, &h.id
	counted := h.limiterKey()
	if x.refusals.exceeded(counted) {
		return nil, refusal(http.StatusTooManyRequests,
			CodeTooMany, "Host %s was refused too often with this key. Wait a minute.", h.id.Name)
	}
	var out any
	list := x.config.Denied.Get()
	if unknown := list.Err(); unknown != nil {
		return nil, denyListUnknown(unknown)
	}
	if denied := list.CheckIdentity(h.id); denied != nil {
		err = refusal(http.StatusForbidden, CodeEvicted, "Host %s is refused: %s.", h.id.Name, denied)
	} else {
		x.Trace(true)
		x.compareAgents(h)
		out, err = answer(x, h)
	}
	if refused := new(Refusal); errors.As(err, &refused) &&
		refused.Code != CodeTooMany && refused.Code != CodeBadRequest {
		x.refusals.add(counted)
		return nil, x.logRefusal(h, refused)
	}
	return out, err
}

// denyListUnknown is the answer to hosts while it is not known which are denied.
func denyListUnknown(err error) error {
	return refusal(http.StatusServiceUnavailable, CodeUnavailable, "No host is let in now: %s.", err)
}

// logRefusal logs why a host gets no certificate, and returns the error.
func (x *exchange) logRefusal(h holder, refused *Refusal) error {
	switch {
	case !x.logs.Allow("renew " + h.id.Name + string(refused.Code)):
	case refused.Code == CodeKeyUnknown:
		x.recordConflict(h)
	default:
		x.config.Logger.Warn().Str("host", h.id.Name).Str("address", h.address).Str("key", h.key).
			Str("code", string(refused.Code)).Str("why", refused.Message).
			Msg("The certificate of a host was not renewed.")
	}
	return refused
}

// enrolled is the enrolment of a host that may renew its certificate. It takes no lock of the
// database: refusals cost a read.
func (x *exchange) enrolled(h holder) (apidb.Enrolment, error) {
	e, err := x.config.Store.Enrolment(x.R.Context(), h.id.Name)
	if err == nil {
		err = checkRenewal(e, h)
	}
	return e, err
}

// conflictKept is how long the same conflict of a host is not written again.
const conflictKept = time.Hour

// confirmTime is how long a host has to confirm a renewed certificate before a renewal from another
// address replaces it.
const confirmTime = time.Minute

// checkReplacement refuses to replace a key that the host has just received and not confirmed yet,
// if the renewal comes from another address: one of the two may be a copy, and the first one
// confirms.
func checkReplacement(e apidb.Enrolment, h holder) error {
	if e.NextKeyDigest == "" || h.key == e.NextKeyDigest ||
		h.address == e.RenewedFrom || h.now.Sub(e.Issued).Abs() >= confirmTime {
		return nil
	}
	return refusal(http.StatusTooManyRequests, CodeTooMany,
		"The certificate of host %s was renewed from %s at %s, and that was not confirmed yet. Wait a minute.",
		h.id.Name, e.RenewedFrom, e.Issued.UTC().Format(time.RFC3339))
}

// replacedKey is the unconfirmed key that a renewal with a new key ends, "" if it ends none.
func replacedKey(e apidb.Enrolment, h holder, key string) string {
	if e.NextKeyDigest == h.key || e.NextKeyDigest == key {
		return ""
	}
	return e.NextKeyDigest
}

// recordConflict logs and records that a key was shown which is not the host's any more.
func (x *exchange) recordConflict(h holder) {
	// It is kept though the client has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.R.Context()), requestTime)
	defer cancel()
	const notKept = "The use of a key of before was not kept: `cells manage list-hosts` does not show it."
	e, err := x.config.Store.Enrolment(ctx, h.id.Name)
	if err != nil {
		x.config.Logger.Error().Err(err).Str("host", h.id.Name).Str("address", h.address).Str("key", h.key).Msg(notKept)
		return
	}
	x.config.Logger.Warn().Str("host", h.id.Name).Str("address", h.address).Str("key", h.key).
		Str("host_key", e.KeyDigest).Str("unconfirmed_key", e.NextKeyDigest).
		Time("renewed", e.Issued).Str("renewed_from", e.RenewedFrom).
		Msg("A host has shown a key that is not its own any more. Either its state " +
			"directory was restored from a copy, or another machine has one. If you " +
			"did not restore it, evict the host: compute-agent cells manage evict-host.")
	if c := e.Conflict; c != nil && c.Key == h.key && c.From == h.address && h.now.Sub(c.At).Abs() < conflictKept {
		return
	}
	_, err = x.config.Store.ChangeEnrolment(ctx, h.id.Name, func(e *apidb.Enrolment) error {
		refused := new(Refusal)
		if err := checkRenewal(*e, h); !errors.As(err, &refused) || refused.Code != CodeKeyUnknown {
			return errNoConflict
		}
		e.Conflict = &apidb.KeyConflict{At: h.now, From: h.address, Key: h.key}
		return nil
	})
	if err != nil && !errors.Is(err, errNoConflict) {
		x.config.Logger.Error().Err(err).Str("host", h.id.Name).Msg(notKept)
	}
}

var errNoConflict = errors.New("the key is the host's")

// renewAnswer is the answer to a host that renews its certificate.
func (x *exchange) renewAnswer(h holder) (any, error) {
	if x.renewals.exceeded(h.limiterKey()) || x.hostRenewals.exceeded(h.id.Name) {
		return nil, refusal(http.StatusTooManyRequests,
			CodeTooMany, "Host %s has renewed its certificate too often. Wait a minute.", h.id.Name)
	}
	request, err := decode[RenewRequest](x)
	if err != nil {
		return nil, err
	}
	csr, nodes, err := parseRequest(request.CSR, request.Nodes)
	if err != nil {
		return nil, err
	}
	before, err := x.enrolled(h)
	if err != nil {
		return nil, err
	}
	cell, err := x.cellOf(before) // before anything is changed
	if err != nil {
		return nil, err
	}
	var certificate []byte
	var refused []string
	var old string
	e, err := x.config.Store.ChangeEnrolment(x.R.Context(), h.id.Name, func(e *apidb.Enrolment) (err error) {
		if err := checkRenewal(*e, h); err != nil {
			return err
		}
		if err := checkReplacement(*e, h); err != nil {
			return err
		}
		before, old = *e, replacedKey(*e, h, csr.digest)
		if old != "" && before.RenewedFrom != h.address {
			e.Conflict = &apidb.KeyConflict{At: h.now, From: before.RenewedFrom, Key: old}
		}
		if h.key == e.NextKeyDigest { // older agents do not confirm
			e.KeyDigest = e.NextKeyDigest
		}
		if e.NextKeyDigest = csr.digest; csr.digest == e.KeyDigest {
			e.NextKeyDigest = ""
		}
		e.RenewedFrom = h.address
		addReported(e, nodes)
		refused = refusedNodes(*e, nodes)
		certificate, err = x.sign(csr.request, e, cell, h.now)
		return err
	})
	if err != nil {
		return nil, nodeTaken(err)
	}
	x.renewals.add(h.limiterKey())
	x.hostRenewals.add(h.id.Name)
	x.config.Logger.Info().Str("host", e.Host).Str("address", h.address).Str("key", h.key).Str("new_key", csr.digest).
		Time("expires", e.ExpiresAt).Msg("A host renewed its certificate.")
	if old != "" {
		x.config.Logger.Warn().Str("host", e.Host).Str("address", h.address).Str("replaced_key", old).
			Time("renewed", before.Issued).Str("renewed_from", before.RenewedFrom).
			Msg("A host renewed its certificate again, and never confirmed the one before. Either the answer was " +
				"lost, or another machine has a copy of its identity.")
	}
	if len(refused) > 0 && x.logs.Allow("nodes "+e.Host) {
		x.config.Logger.Warn().Str("host", e.Host).
			Strs("refused", refused).Msg("A host reports compute nodes that it was not enrolled for.")
	}
	return x.answer(e, certificate, cell, refused), nil
}

// confirmAnswer is the answer to a host that has the certificate which it shows. Its former key is
// refused from then on. The same again changes nothing.
func (x *exchange) confirmAnswer(h holder) (any, error) {
	if _, err := decode[ConfirmRequest](x); err != nil {
		return nil, err
	}
	e, err := x.enrolled(h)
	if err != nil {
		return nil, err
	}
	if h.key != e.KeyDigest {
		before := e.KeyDigest
		if _, err := x.config.Store.ChangeEnrolment(x.R.Context(), h.id.Name, func(e *apidb.Enrolment) error {
			if err := checkRenewal(*e, h); err != nil {
				return err
			}
			if h.key == e.NextKeyDigest {
				e.KeyDigest, e.NextKeyDigest = h.key, ""
			}
			return nil
		}); err != nil {
			return nil, err
		}
		x.config.Logger.Info().Str("host", e.Host).Str("address", h.address).Str("key", h.key).Str("ended_key", before).
			Msg("A host confirmed its renewed certificate. Its key of before is refused.")
	}
	return Confirmation{Host: e.Host}, nil
}

// client is the digest of the key that the connection has shown, and whom its certificate is for.
// It may have expired within the grace.
func (x *exchange) client(now time.Time) (digest string, id pki.Identity, err error) {
	unauthorized := func(format string, args ...any) error {
		return refusal(http.StatusUnauthorized, CodeUnauthorized, format, args...)
	}
	if x.R.TLS == nil || len(x.R.TLS.PeerCertificates) == 0 {
		return "", id, unauthorized("The connection has no client certificate.")
	}
	c := x.R.TLS.PeerCertificates[0]
	roots := x509.NewCertPool()
	roots.AddCert(x.config.Authority.Certificate())
	at := now
	switch {
	case at.After(c.NotAfter):
		at = c.NotAfter
	case at.Before(c.NotBefore): // the clock of the service that signed it is ahead
		at = c.NotBefore
	}
	if _, err := c.Verify(x509.VerifyOptions{Roots: roots,
		CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return "", id, unauthorized("The client certificate is not one of this CA: %s.", err)
	}
	if now.After(c.NotAfter.Add(x.config.RenewalGrace)) {
		return "", id, unauthorized(
			"The client certificate expired at %s, too long ago to be renewed. Join again with a new token: "+
				"compute-agent cells manage add-host --again.",
			c.NotAfter.UTC().Format(time.RFC3339))
	}
	if id, err = pki.IdentityOf(c); err != nil || id.Kind != pki.Host {
		return "", id, refusal(http.StatusForbidden, CodeNotEnrolled, "The client certificate is not that of a host.")
	}
	digest, err = keyDigest(c.PublicKey)
	return digest, id, err
}

// checkRenewal refuses a host that may not renew its certificate with its key.
func checkRenewal(e apidb.Enrolment, h holder) error {
	host := h.id.Name
	again := "`compute-agent cells manage add-host " +
		host + " --again` on the machine of the compute API makes a token for it."
	switch {
	case e.State == "":
		return refusal(http.StatusForbidden, CodeNotEnrolled, "Host %s is not enrolled. %s", host, again)
	case e.State == apidb.Evicted:
		return evicted(e)
	case e.State == apidb.Invited, h.id.Issued.Before(e.DeniedBefore):
		return refusal(http.StatusForbidden, CodeNotEnrolled,
			"Host %s was invited again, and this certificate is of before. Join with the new token.", host)
	case h.key != e.KeyDigest && (h.key != e.NextKeyDigest || h.key == ""):
		what, at, from := "renewed it", e.Issued, e.RenewedFrom
		if from == "" {
			what, at, from = "joined", e.EnrolledAt, e.EnrolledFrom
		}
		return refusal(http.StatusForbidden, CodeKeyUnknown,
			"Another holder of the certificate of host %s %s at %s from %s. "+
				"If the state directory of this machine was restored from a copy, join again: %s "+
				"If it was not, the identity was copied: compute-agent cells manage evict-host %[1]s.", host, what,
			at.UTC().Format(time.RFC3339), from, again)
	}
	return nil
}
