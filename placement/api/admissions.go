// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// hostNamed is the key of the host that the path names.
func (x *exchange) hostNamed() (string, error) {
	name := x.R.PathValue("host")
	if !ledger.ValidHostName(name) {
		return "", badRequest("%s is no name of a host.", shortened(strconv.Quote(name)))
	}
	return hostpolicy.HostKey(name), nil
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
	err = x.update(func(tx *ledger.Tx) (err error) {
		h, err = x.api.hosts.State(tx, name, &change, kinds)
		return err
	})
	if err != nil {
		return explain(err, nil, "Unable to state what the host %s may report", shortened(name))
	}
	return x.admission(h)
}

// admission answers with what a host may report.
func (x *exchange) admission(h *ledger.Host) error {
	body, err := json.Marshal(x.api.hosts.Admission(h))
	if err != nil {
		return fmt.Errorf("encode what a host may report: %w", err)
	}
	return x.json(http.StatusOK, body, time.Time{})
}
