// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

// Explain says why no connection could be made and what to do. libvirt's library has one error code for all of it, so
// the sockets that the URI leads to are tried once more without it.
func Explain(ctx context.Context, uri string, write bool, err error) error {
	if errors.Is(err, ErrNoLibrary) {
		return fmt.Errorf("%w; install it: apt-get install libvirt0", err)
	}
	worst := error(nil)
	for _, socket := range libvirtd.Sockets(uri, write) {
		problem := libvirtd.Probe(ctx, socket)
		switch {
		case problem == nil:
			return fmt.Errorf("%w (yet the daemon answers at %s: see its log)", err, socket)
		case worst == nil || errors.Is(worst, libvirtd.ErrNotRunning):
			worst = problem
		}
	}
	switch {
	case worst == nil:
		return err
	case errors.Is(worst, libvirtd.ErrNotRunning):
		return fmt.Errorf("%w; %s", worst, startRemedy(uri))
	case errors.Is(worst, libvirtd.ErrSilent):
		return fmt.Errorf("%w; if it stays so: systemctl restart libvirtd (or virtqemud), guests go on running", worst)
	}
	return fmt.Errorf("%w: %w", worst, err)
}

// startRemedy says how to get a daemon where the URI leads.
func startRemedy(uri string) string {
	if u, err := url.Parse(uri); err == nil && u.Query().Get("socket") != "" {
		return "start the daemon that is meant to listen there, or correct uri in the libvirt driver's configuration"
	}
	return "start it: systemctl start libvirtd.socket (or virtqemud.socket); if that is unknown, install it: apt-get install libvirt-daemon-system"
}
