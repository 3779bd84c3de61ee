// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// admissionTimeout limits the requests about what a host may report.
const admissionTimeout = time.Minute

// admissions returns a client of Placement for what hosts may report, which does not retry: an
// operator waits. Hosts are there at every microversion; errors have codes from this one on.
func (d *Deployment) admissions() (*placementclient.Client, error) {
	a, err := d.access()
	if err != nil {
		return nil, err
	}
	a.Retries, a.Microversion = 0, wire.Version(wire.ErrorCodes).String()
	return placementclient.New(a.Config)
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
			"its own, "+
			"or this is OpenStack's Placement, which has no hosts: %w", host, err)
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
