// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/inventory"
)

// DomainCapabilitiesFlag is the first argument of the driver's program that makes it save what
// libvirt tells only to users with write access: the domain capabilities.
//
//	compute-agent-domain-capabilities.service   in the group libvirt, at each start of the agent
//	  └─ compute-driver-libvirt --domain-capabilities ──▶ domainCapabilitiesFile
//	compute-agent.service                       has libvirt's read-only socket
//	  └─ compute-driver-libvirt ◀─────────────────────────────┘
const DomainCapabilitiesFlag = "--domain-capabilities"

// domainCapabilitiesFile is the file in which the unit compute-agent-domain-capabilities saves the
// domain capabilities.
const domainCapabilitiesFile = "/run/compute-agent-domain-capabilities/domain-capabilities.json"

const (
	// maxSaved bounds the file in bytes. One document has some 12 KiB.
	maxSaved = 16 << 20
	// saveTime bounds the time that saving takes: libvirt may have to probe its emulators.
	saveTime = 2 * time.Minute
	// restartHint is how to save them again.
	restartHint = "systemctl restart compute-agent-domain-capabilities"
)

// savedCapabilities is the content of the file.
type savedCapabilities struct {
	// Libvirt and Emulator are the versions of those that were asked.
	Libvirt  inventory.Version `json:"libvirt"`
	Emulator inventory.Version `json:"emulator"`
	Domains  []savedDomain     `json:"domains"`
	SEV      *hypervisor.SEV   `json:"sev,omitempty"`
}

// savedDomain are the capabilities of one kind of guest.
type savedDomain struct {
	Kind capabilities.Kind `json:"kind"`
	XML  string            `json:"xml"`
}

// saveDomainCapabilities asks libvirt for the domain capabilities of all kinds of guests that the
// driver reports, and writes them to a file, which replaces an older one at once.
func saveDomainCapabilities(open hypervisor.Open, args []string) error {
	flags := flag.NewFlagSet(DomainCapabilitiesFlag, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	uri := flags.String("uri", "qemu:///system", "")
	file := flags.String("file", domainCapabilitiesFile, "")
	if err := flags.Parse(args); err != nil || flags.NArg() > 0 {
		return errors.Join(err,
			errors.New("usage: compute-driver-libvirt "+DomainCapabilitiesFlag+" [--uri URI] [--file FILE]"))
	}
	ctx, cancel := context.WithTimeout(context.Background(), saveTime)
	defer cancel()
	link := hypervisor.NewLink(hypervisor.Settings{URI: *uri, Write: true, Open: open, ConnectTimeout: saveTime,
		CallTimeout: saveTime, Explain: hypervisor.Explain})
	saved, err := hypervisor.Call(ctx, link, "the domain capabilities", askToSave)
	if err := errors.Join(err, link.Close(ctx)); err != nil {
		return err
	}
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	return replaceFile(*file, text)
}

// askToSave asks for all that the file has.
func askToSave(c hypervisor.Conn) (saved savedCapabilities, err error) {
	libvirt, emulator, err := c.Versions()
	if err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return saved, fmt.Errorf("the versions: %w", err)
	}
	saved.Libvirt, saved.Emulator = inventory.Version(libvirt), inventory.Version(emulator)
	var known reusedAnswers
	text, err := c.Capabilities()
	if err == nil {
		err = known.read(text)
	}
	if err != nil {
		return saved, fmt.Errorf("the capabilities: %w", err)
	}
	encrypts := false
	for _, kind := range known.kinds {
		xml, err := c.DomainCapabilities(emulatorOf(kind))
		if errors.Is(err, hypervisor.ErrUnsupported) {
			break
		}
		if err != nil {
			return saved, fmt.Errorf("the domain capabilities (%s, %s): %w", kind.Arch, kind.Machine, err)
		}
		parsed, err := capabilities.ParseDomain(xml)
		if err != nil {
			return saved, fmt.Errorf("the domain capabilities (%s, %s): %w", kind.Arch, kind.Machine, err)
		}
		encrypts = encrypts || parsed.SEV.Supported
		saved.Domains = append(saved.Domains, savedDomain{kind, xml})
	}
	if encrypts {
		sev, err := c.SEV()
		switch {
		case err == nil:
			saved.SEV = &sev
		case !errors.Is(err, hypervisor.ErrUnsupported):
			return saved, fmt.Errorf("the memory encryption: %w", err)
		}
	}
	return saved, nil
}

// replaceFile writes a file that all users may read.
func replaceFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// readSaved reads the file, which must be of these versions.
func readSaved(path string, libvirt, emulator inventory.Version) (savedCapabilities, error) {
	var saved savedCapabilities
	f, err := os.Open(path)
	if err != nil {
		return saved, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxSaved+1))
	switch {
	case err != nil:
		return saved, err
	case len(text) > maxSaved:
		return saved, fmt.Errorf("%s has more than %d bytes", path, maxSaved)
	}
	if err := json.Unmarshal(text, &saved); err != nil {
		return saved, fmt.Errorf("%s: %w", path, err)
	}
	if saved.Libvirt != libvirt || saved.Emulator != emulator {
		return savedCapabilities{}, fmt.Errorf("%s is of another version of libvirt or QEMU", path)
	}
	return saved, nil
}

// savedFile is the file, which is read if libvirt refuses an answer, and then used for all of them.
type savedFile struct {
	path              string
	libvirt, emulator inventory.Version
	used              bool
	content           savedCapabilities
}

// read takes what the file says, since libvirt refused to, with the reason refused.
func (f *savedFile) read(kind capabilities.Kind, refused error) (domain capabilities.Domain, err error) {
	if f.content, err = readSaved(f.path, f.libvirt, f.emulator); err == nil {
		f.used = true
		domain, err = f.content.domain(kind)
	}
	if err != nil {
		return domain, fmt.Errorf(
			"%w; the agent reports with read access only, and what compute-agent-domain-capabilities.service has "+
				"saved cannot be used (%w): %s",
			refused, err, restartHint)
	}
	return domain, nil
}

// domain are the capabilities of one kind of guest.
func (f *savedFile) domain(kind capabilities.Kind) (capabilities.Domain, error) {
	return f.content.domain(kind)
}

// domain are the capabilities of one kind of guest.
func (s savedCapabilities) domain(kind capabilities.Kind) (capabilities.Domain, error) {
	i := slices.IndexFunc(s.Domains, func(d savedDomain) bool { return d.Kind == kind })
	if i < 0 {
		return capabilities.Domain{}, errors.New("they were saved before libvirt knew this kind of guest")
	}
	return capabilities.ParseDomain(s.Domains[i].XML)
}

func emulatorOf(kind capabilities.Kind) hypervisor.Emulator {
	return hypervisor.Emulator{Path: kind.Emulator, Arch: kind.Arch, Machine: kind.Machine, Virt: kind.Type}
}
