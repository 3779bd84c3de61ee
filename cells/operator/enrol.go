// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Invitation is the answer of add-host.
type Invitation struct {
	Host    string           `json:"host"`
	Cell    string           `json:"cell"`
	Nodes   []enrolment.Node `json:"nodes"`
	Token   string           `json:"token"`
	Expires time.Time        `json:"expires"`
	URL     string           `json:"url"`
	// Again says that the certificates which the host had are refused.
	Again bool `json:"again,omitempty"`
	// CellURL is the URL of the cell.
	CellURL string `json:"-"`
}

// InviteHost makes a token for a host of a cell, which is given by name or uuid. caFile has the
// certificate of the CA; "": that of the service.
func (d *Deployment) InviteHost(ctx context.Context, cell, caFile string, i enrolment.Invitation) (*Invitation, error) {
	in, err := d.findCell(ctx, cell)
	if err != nil {
		return nil, err
	}
	i.CellUUID, i.By = in.UUID, sqldb.CommandUser(ctx)
	v, err := d.invite(ctx, caFile, i)
	if err != nil {
		return nil, enrolmentError(err)
	}
	v.Cell, v.CellURL = in.Name, in.URL
	return v, nil
}

// invite makes a token for a host.
func (d *Deployment) invite(ctx context.Context, caFile string, i enrolment.Invitation) (*Invitation, error) {
	url, err := d.Enrolment.Address()
	if err != nil {
		return nil, err
	}
	fingerprint, err := d.caFingerprint(caFile)
	if err != nil {
		return nil, err
	}
	i.Now = d.now()
	e, token, err := enrolment.Invite(ctx, d.Store, fingerprint, i)
	if err != nil {
		return nil, err
	}
	return &Invitation{
		Host: e.Host, Nodes: nodesOf(e), Token: token.Reveal(), Expires: e.InvitedUntil, URL: url,
		Again: !e.DeniedBefore.IsZero(),
	}, nil
}

// caFingerprint returns the fingerprint of the CA of hosts. Its certificate is in file, or in the
// directory of the enrolment service if file is "".
func (d *Deployment) caFingerprint(file string) (string, error) {
	dir := d.Enrolment.CADirectory()
	if file == "" && dir == "" {
		return "", fmt.Errorf("%w: enrolment.ca_dir is empty; --ca-file names the certificate of the CA",
			config.ErrInvalid)
	}
	file = cmp.Or(file, filepath.Join(dir, pki.CACertificateFile))
	content, err := files.Read(file)
	if err != nil {
		return "", fmt.Errorf("the certificate of the CA: %w", err)
	}
	block, _ := pem.Decode(content.Data)
	if block == nil {
		return "", fmt.Errorf("the certificate of the CA: %s has none in PEM", file)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("the certificate of the CA: %s: %w", file, err)
	}
	return pki.Fingerprint(ca), nil
}

// EnrolNode adds a compute node to a host that was invited or has joined. It returns the name of
// the host, and all nodes that it has then.
func (d *Deployment) EnrolNode(
	ctx context.Context, host string, node enrolment.Node,
) (known string, nodes []enrolment.Node, err error) {
	e, err := enrolment.EnrolNode(ctx, d.Store, host, node)
	if err != nil {
		return "", nil, enrolmentError(err)
	}
	return e.Host, nodesOf(e), nil
}

// ParseNodes reads UUID or UUID=NAME of compute nodes, as an operator gives them.
func ParseNodes(texts []string) ([]enrolment.Node, error) {
	nodes := make([]enrolment.Node, 0, len(texts))
	for _, text := range texts {
		id, name, named := strings.Cut(text, "=")
		parsed, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("%.100q is not UUID or UUID=NAME of a compute node", text)
		}
		if named {
			if err := pki.CheckName(name); err != nil {
				return nil, err
			}
		}
		nodes = append(nodes, enrolment.Node{UUID: parsed.String(), Name: name})
	}
	return nodes, nil
}

func nodesOf(e apidb.Enrolment) []enrolment.Node {
	nodes := make([]enrolment.Node, 0, len(e.Nodes))
	for _, n := range e.Nodes {
		nodes = append(nodes, enrolment.Node{UUID: n.UUID, Name: n.Name})
	}
	return nodes
}

// enrolmentError adds to the error of an enrolment what an operator does about it.
func enrolmentError(err error) error {
	taken := new(apidb.NodeTakenError)
	switch {
	case errors.Is(err, enrolment.ErrAlreadyInvited):
		return refused("%w; with --again it gets a new token, and the certificates that it has are refused", err)
	case errors.Is(err, enrolment.ErrAhead):
		return refused("%w; it was evicted, or got its last certificate, while a clock was ahead: "+
			"check the clock of this machine, then run: compute-agent cells manage allow-host HOST", err)
	case errors.As(err, &taken) && taken.Name != "":
		return refused("%w: a host has NAME, NAME.DOMAIN and what begins with NAME_ in "+
			"Placement, so that one could change or block the provider trees of the "+
			"other; choose another name, or, if host %s is gone, evict and delete it", err, taken.Host)
	case errors.As(err, &taken):
		return refused("%w; if the node has moved, evict and delete that host first: compute-agent cells manage "+
			"evict-host %s, then delete-host %[2]s", err, taken.Host)
	}
	return err
}

// Allowed is the answer of allow-host.
type Allowed struct {
	Host   string               `json:"host"`
	State  apidb.EnrolmentState `json:"state"`
	Denied time.Time            `json:"denied_before"`
	// From and Until are those of a certificate that was issued in the future.
	From  time.Time `json:"certificate_from,omitzero"`
	Until time.Time `json:"certificate_until,omitzero"`
}

// AllowHost ends that a host is refused until a time in the future.
func (d *Deployment) AllowHost(ctx context.Context, host string) (*Allowed, error) {
	e, ahead, err := enrolment.Allow(ctx, d.Store, host, d.now())
	switch {
	case errors.Is(err, apidb.ErrNotFound):
		hosts, listErr := HostNames(ctx, d.Store)
		return nil, errors.Join(fmt.Errorf("%w%s", err, Suggestion(host, hosts)), listErr)
	case errors.Is(err, enrolment.ErrNotAhead):
		return nil, refused("%w; to invite an evicted host again: compute-agent cells manage add-host %s --again",
			err, host)
	case err != nil:
		return nil, err
	}
	return &Allowed{e.Host, e.State, e.DeniedBefore, ahead.From, ahead.Until}, nil
}

// admissionTimeout limits the requests about what a host may report.
const admissionTimeout = time.Minute

// admissions returns a client of Placement for what hosts may report. Hosts are there at every
// microversion; errors have codes from this one on.
func (d *Deployment) admissions() (*placementclient.Client, error) {
	return access.ForCommand(d.Placement, wire.Version(wire.ErrorCodes).String())
}

// KnownHost returns the name of a host that is enrolled or mapped, whose case does not count.
func (d *Deployment) KnownHost(ctx context.Context, name string) (string, error) {
	hosts, err := HostNames(ctx, d.Store)
	if err != nil {
		return "", err
	}
	if known := KnownName(name, hosts); known != "" {
		return known, nil
	}
	return "", refused("no host of the name %s is enrolled or mapped%s; to take the name as it is, add --unknown",
		name, Suggestion(name, hosts))
}

// AdmitHost states at Placement what a host may report, and returns what that is then; without a
// change, it only asks. It does not use the API database.
func (d *Deployment) AdmitHost(
	ctx context.Context, host string, change wire.AdmissionChange,
) (a wire.HostAdmission, err error) {
	ctx, cancel := context.WithTimeout(ctx, admissionTimeout)
	defer cancel()
	client, err := d.admissions()
	if err != nil {
		return a, err
	}
	defer client.CloseIdle()
	if len(change.Classes) == 0 && len(change.Traits) == 0 && !change.Window {
		a, err = client.Admission(ctx, host)
	} else {
		a, err = client.Admit(ctx, host, change)
	}
	switch {
	case errors.Is(err, placementclient.ErrNotFound):
		return a, fmt.Errorf("placement knows nothing of host %s: it has reported nothing yet with a credential of "+
			"its own, or this is OpenStack's Placement, which has no hosts: %w", host, err)
	case errors.Is(err, placementclient.ErrRefused):
		return a, fmt.Errorf("%w; [placement_client] of the compute API needs a user with the role admin or service, "+
			"to which the rules placement:host_admissions allow it", err)
	case err != nil:
		return a, fmt.Errorf("%w; check [placement_client] of the compute API", err)
	}
	return a, nil
}

// ParseAdmission reads CLASS=AMOUNT of resource classes, and names of traits, as an operator gives
// them.
func ParseAdmission(classes, traits []string, window bool) (wire.AdmissionChange, error) {
	change := wire.AdmissionChange{Classes: map[string]int64{}, Traits: traits, Window: window}
	for _, text := range classes {
		class, amount, _ := strings.Cut(text, "=")
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil || n < 0 || !providertree.IsSymbol(class) {
			return change, fmt.Errorf("--class %.100q is not CLASS=AMOUNT, such as VCPU=128", text)
		}
		change.Classes[class] = n
	}
	for _, trait := range traits {
		if !providertree.IsSymbol(trait) {
			return change, fmt.Errorf("--trait %.100q is not the name of a trait, such as HW_GPU", trait)
		}
	}
	return change, nil
}
