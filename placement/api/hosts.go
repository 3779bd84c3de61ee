// SPDX-License-Identifier: Apache-2.0

package api

import (
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// hostDeps returns what package hostpolicy needs of the API.
func (a *API) hostDeps() hostpolicy.Deps {
	deps := hostpolicy.Deps{
		Now: a.service.Now, Logger: a.service.Logger,
		Allows: func(action hostpolicy.Action, who *osapi.Principal) bool {
			return a.policy.Allows(Action(action), who, "")
		},
		CapacityFactor: a.options.HostCapacityFactor, AdmissionWindow: a.options.HostAdmissionWindow,
		ClassRenames: a.options.HostClassRenames,
	}
	if a.observer != nil {
		deps.Limited = a.observer.HostLimited
	}
	return deps
}

// host returns the checks of the request; nil if it is not from a host.
func (x *exchange) host() *hostpolicy.Request { return x.api.hosts.Request(&x.Exchange) }

// admitHost checks a request of a host before its handler runs. The handler then reads the snapshot
// that was checked.
func (x *exchange) admitHost(h *hostpolicy.Request, access hostpolicy.Access) error {
	if err := h.Admit(access); err != nil || !access.Reads() {
		return err
	}
	s, err := x.read()
	if err == nil && h.NeedsReclaim(s) {
		s, err = x.transactAudited(x.R.Context(), h.Reclaim)
	}
	if err != nil {
		return err
	}
	x.readable = s
	return h.MayRead(s, access, func() (wire.ProviderQuery, error) {
		return wire.ReadProviderQuery(x.R.URL.RawQuery, x.v, x.extensions)
	})
}

// HostsOfSeveralAgents is how many hosts several agents report as now, as far as this process
// knows.
func (a *API) HostsOfSeveralAgents() int { return a.hosts.SeveralAgents() }
