// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"fmt"
	"strings"
)

// Virsh runs libvirt's command line on the simulated host, and returns its output. The error has
// libvirt's message; ErrNoVirsh if virsh is not installed.
func (s *Sim) Virsh(ctx context.Context, args ...string) (string, error) {
	return s.virsh(ctx, "", args...)
}

func (s *Sim) virsh(ctx context.Context, stdin string, args ...string) (string, error) {
	out, err := virsh(ctx, s.URI(), stdin, args...)
	if err != nil {
		return out, fmt.Errorf("%w: %w", ErrRemotely, err)
	}
	return out, nil
}

// Define makes a domain that lasts, or changes the one with the same UUID, from its XML. It needs
// Options.Emulators, since libvirt defines only what some emulator could run.
func (s *Sim) Define(ctx context.Context, xml string) error {
	_, err := s.virsh(ctx, xml, "define", "/dev/stdin")
	return err
}

// Boot starts a defined domain. With devices of the host in it, that needs Options.Passthrough.
func (s *Sim) Boot(ctx context.Context, domain string) error {
	_, err := s.Virsh(ctx, "start", domain)
	return err
}

// Destroy ends a running domain at once; its definition stays.
func (s *Sim) Destroy(ctx context.Context, domain string) error {
	_, err := s.Virsh(ctx, "destroy", domain)
	if err == nil {
		return nil
	}
	// A daemon that was started a moment ago takes its guests over: one that is ended meanwhile is
	// "not running" in the end, as it should be.
	if state, asked := s.Virsh(ctx, "domstate", domain); asked == nil && strings.TrimSpace(state) == "shut off" {
		return nil
	}
	return err
}

// Undefine removes the definition of a domain; a running one goes on until it ends.
func (s *Sim) Undefine(ctx context.Context, domain string) error {
	_, err := s.Virsh(ctx, "undefine", domain)
	return err
}
