// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// newRenewer returns what renews the certificate of this host, as [enrolment_client] says. Without
// it, the certificate of [cell_client] or [placement_client] is only read. Nil: no certificate.
func (a *Agent) newRenewer(cfg *config.Config) *enrolment.Renewer {
	r := enrolment.RenewerConfig{Nodes: a.enrolledNodes, Logger: a.log}
	switch client := cfg.EnrolmentClient; {
	case client.URL != "":
		r.CertFile, r.KeyFile = client.IdentityFile, client.IdentityFile
		service := &enrolment.Client{URL: client.URL, CAFile: client.CAFile, IdentityFile: client.IdentityFile, Process: &a.run.enrolment, Tracing: a.telemetry.Spans}
		r.Renew, r.Confirm = service.Renew, service.Confirm
	case cfg.CellClient.CertFile != "":
		r.CertFile, r.KeyFile = cfg.CellClient.CertFile, cfg.CellClient.KeyFile
	case cfg.PlacementClient.CertFile != "":
		r.CertFile, r.KeyFile = cfg.PlacementClient.CertFile, cfg.PlacementClient.KeyFile
	default:
		return nil
	}
	return enrolment.NewRenewer(r)
}

// renewCertificate renews the certificate until ctx ends.
func (a *Agent) renewCertificate(ctx context.Context) {
	if a.renewer != nil {
		a.renewer.Run(ctx)
	}
}

// enrolledNodes are the nodes that the drivers of this host have named.
func (a *Agent) enrolledNodes() []enrolment.Node {
	var out []enrolment.Node
	for _, d := range a.drivers.active() {
		for _, n := range d.tracker.Status().Nodes {
			if n.State == resourcetracker.Orphaned || n.UUID == "" {
				continue
			}
			node := enrolment.Node{UUID: n.UUID, Name: n.Name}
			if pki.CheckName(n.Name) != nil { // it cannot be in a certificate
				node.Name = ""
			}
			out = append(out, node)
		}
	}
	return out
}

// identityView returns the certificate for the status, nil if there is none.
func (a *Agent) identityView() *health.Identity {
	if a.renewer == nil {
		return nil
	}
	s := a.renewer.Status()
	return &health.Identity{
		SeveralAgents: a.run.enrolment.SeveralAgents(),
		Host:          s.Host, Nodes: s.Nodes, Since: s.Since, Expires: s.Expires, Renews: s.Renews, NextRenewal: s.Next, Error: s.Error, Refused: s.Refused,
		RenewedElsewhere: s.RenewedElsewhere, RefusedNodes: s.RefusedNodes, Renewed: s.Succeeded, Failed: s.Failed,
	}
}
