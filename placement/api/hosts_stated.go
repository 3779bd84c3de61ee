// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// reportedBefore is Host.Since of a host that had reported before anyone noted when.
var reportedBefore = time.Unix(1, 0).UTC()

// clockSkew is how far the clocks of servers may differ. A time that is further ahead comes from a
// clock that was wrong.
const clockSkew = 10 * time.Minute

// fromWrongClock reports whether what is noted of a host comes from a clock that was wrong. Such a
// time never begins: what the host has had is all that is known.
func (a *API) fromWrongClock(h *ledger.Host) bool { return h.Since.Sub(a.service.Now()) > clockSkew }

// openUntil is when the time ends in which all that a host reports is admitted; the zero time if
// there is none.
func (a *API) openUntil(h *ledger.Host) time.Time {
	window := a.options.HostAdmissionWindow
	if h.Since.IsZero() || a.fromWrongClock(h) || a.service.Now().Sub(h.Since) >= window {
		return time.Time{}
	}
	return h.Since.Add(window)
}

// hostNamed is the key of the host that the path names.
func (x *exchange) hostNamed() (string, error) {
	name := x.R.PathValue("host")
	if !ledger.ValidHostName(name) {
		return "", badRequest("%s is no name of a host.", shortened(strconv.Quote(name)))
	}
	return hostKey(name), nil
}

// showAdmission is GET /hosts/{host}/admission. It is not a call of OpenStack's Placement.
func showAdmission(x *exchange) error {
	name, err := x.hostNamed()
	if err != nil {
		return err
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	h, ok := s.Host(name)
	if !ok {
		return notFound("The host %s has reported nothing, and nothing is stated of it.", shortened(name))
	}
	return x.admission(h)
}

// updateAdmission is POST /hosts/{host}/admission.
func updateAdmission(x *exchange) error {
	name, err := x.hostNamed()
	if err != nil {
		return err
	}
	body, err := x.Body()
	if err != nil {
		return err
	}
	change, err := wire.DecodeAdmissionChange(body)
	if err != nil {
		return err
	}
	kinds := make([]string, len(change.Traits))
	for i, trait := range change.Traits {
		if kinds[i] = wire.TraitKind(trait); kinds[i] == "" {
			return badRequest(
				"The trait %s needs no admission: a host may have all traits that begin with %q, but for %s.",
				shortened(trait), wire.KindlessTraits(), wire.SecurityTraits)
		}
	}
	var h *ledger.Host
	err = x.update(func(tx *ledger.Tx) error {
		now := ledger.Host{Name: name, Classes: map[string]int64{}}
		if noted, known := tx.Host(name); known {
			now = *noted
			now.Classes = maps.Clone(noted.Classes)
		}
		maps.Copy(now.Classes, change.Classes)
		now.Traits = slices.Concat(now.Traits, kinds)
		if change.Window {
			if now.Since.IsZero() { // what it has is not noted yet
				admitAll(&now, reportedAs(name, tx.Snapshot).withoutClasses(now.Classes))
			}
			now.Since = x.api.service.Now()
		}
		var err error
		h, err = tx.SetHost(now)
		return err
	})
	if err != nil {
		return explain(err, nil, "Unable to state what the host %s may report", shortened(name))
	}
	return x.admission(h)
}

// admission answers with what a host may report.
func (x *exchange) admission(h *ledger.Host) error {
	out := wire.HostAdmission{Host: h.Name, Classes: h.Classes,
		Factor: x.api.options.HostCapacityFactor, Traits: h.Traits}
	if out.Traits == nil {
		out.Traits = []string{}
	}
	if since := h.Since; since.After(reportedBefore) {
		out.Since = &since
	}
	if until := x.api.openUntil(h); !until.IsZero() {
		out.Until = &until
	}
	body, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode what a host may report: %w", err)
	}
	return x.json(http.StatusOK, body, time.Time{})
}
