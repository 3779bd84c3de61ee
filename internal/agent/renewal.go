// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
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
		service := &enrolment.Client{URL: client.URL, CAFile: client.CAFile, IdentityFile: client.IdentityFile,
			Process: &a.run.enrolment, Tracing: a.telemetry.Spans}
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
			out = append(out, enrolledNode(n.UUID, n.Name))
		}
	}
	return out
}

// enrolledNode is a node with its name, unless that cannot be in a certificate.
func enrolledNode(id, name string) enrolment.Node {
	if pki.CheckName(name) != nil {
		name = ""
	}
	return enrolment.Node{UUID: id, Name: name}
}

// NodesToEnrol are the nodes that the agent of this host has reported; without any, the one of its
// identity, if it has one.
func NodesToEnrol(cfg *config.Config) (out []enrolment.Node) {
	for id, owner := range statedir.New(cfg.Agent.StateDir).Owners(zerolog.Nop()) {
		out = append(out, enrolledNode(id, owner.Node))
	}
	if id, err := resourcetracker.FindIdentity(cfg.Agent.StateDir, filepath.Dir(cfg.File())); err == nil && id != "" &&
		len(out) == 0 {
		out = append(out, enrolment.Node{UUID: id})
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
		Host:          s.Host, Nodes: s.Nodes, Since: s.Since, Expires: s.Expires, Renews: s.Renews,
		NextRenewal: s.Next, Error: s.Error, Refused: s.Refused,
		RenewedElsewhere: s.RenewedElsewhere, RefusedNodes: s.RefusedNodes, Renewed: s.Succeeded, Failed: s.Failed,
	}
}
