// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package binding

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

// Domains joins the list with the states. A domain that came or went between the two calls has no
// state: whether it runs stands in for it.
func (c *connection) Domains(want func(hypervisor.Domain) bool) ([]hypervisor.Domain, error) {
	list, err := c.c.ListAllDomains(0)
	if err != nil {
		return nil, fmt.Errorf("listing the domains: %w", translate(err))
	}
	defer func() {
		for i := range list {
			_ = list[i].Free()
		}
	}()
	states, err := c.states()
	if err != nil && !unsupported(err) {
		return nil, fmt.Errorf("reading the states of the domains: %w", translate(err))
	}
	domains := make([]hypervisor.Domain, 0, len(list))
	for i := range list {
		d, err := listed(&list[i], states)
		if err != nil {
			return nil, err
		}
		if want != nil && want(d) {
			d.XML, err = list[i].GetXMLDesc(0)
			if is(err, libvirt.ERR_NO_DOMAIN) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("describing domain %q: %w", d.Name, translate(err))
			}
		}
		domains = append(domains, d)
	}
	slices.SortFunc(domains, func(a, b hypervisor.Domain) int { return strings.Compare(a.UUID, b.UUID) })
	return domains, nil
}

// listed is what is known of a listed domain without asking the daemon.
func listed(l *libvirt.Domain, states map[string]domainState) (d hypervisor.Domain, err error) {
	if d.UUID, err = l.GetUUIDString(); err != nil {
		return d, fmt.Errorf("reading a listed domain: %w", err)
	}
	if d.Name, err = l.GetName(); err != nil {
		return d, fmt.Errorf("reading the listed domain %s: %w", d.UUID, err)
	}
	d.ID, d.State = hypervisor.NotRunning, hypervisor.ShutOff
	if id, err := l.GetID(); err == nil {
		d.ID, d.State = int(id), hypervisor.Running
	}
	if s, ok := states[d.UUID]; ok {
		d.State, d.Reason = s.state, s.reason
	}
	return d, nil
}

func (c *connection) DomainXML(uuid string) (text string, err error) {
	err = c.domain("describing", uuid, func(d *libvirt.Domain) (err error) { text, err = d.GetXMLDesc(0); return translate(err) })
	return text, err
}

// domain does something with one domain.
func (c *connection) domain(what, uuid string, f func(*libvirt.Domain) error) error {
	d, err := c.c.LookupDomainByUUIDString(uuid)
	if err != nil {
		return fmt.Errorf("%s domain %s: %w", what, uuid, translate(err))
	}
	defer func() { _ = d.Free() }()
	if err := f(d); err != nil {
		return fmt.Errorf("%s domain %s: %w", what, uuid, err)
	}
	return nil
}

func (c *connection) DefineDomain(xml string) (string, error) {
	d, err := c.c.DomainDefineXML(xml)
	if err != nil {
		return "", fmt.Errorf("defining a domain: %w", refused(err))
	}
	defer func() { _ = d.Free() }()
	return d.GetUUIDString()
}

func (c *connection) StartDomain(uuid string) error {
	return c.domain("starting", uuid, func(d *libvirt.Domain) error { return refused(d.Create()) })
}

func (c *connection) ResumeDomain(uuid string) error {
	return c.domain("resuming", uuid, func(d *libvirt.Domain) error { return translate(d.Resume()) })
}

func (c *connection) ShutdownDomain(uuid string) error {
	return c.domain("shutting down", uuid, func(d *libvirt.Domain) error { return translate(d.Shutdown()) })
}

func (c *connection) RebootDomain(uuid string) error {
	return c.domain("rebooting", uuid, func(d *libvirt.Domain) error { return translate(d.Reboot(libvirt.DOMAIN_REBOOT_DEFAULT)) })
}

func (c *connection) DestroyDomain(uuid string) error {
	return c.domain("switching off", uuid, func(d *libvirt.Domain) error { return translate(d.Destroy()) })
}

// undefineFlags are what to remove with a definition, all that there is first. Hypervisor drivers
// and versions refuse what they do not know.
var undefineFlags = []libvirt.DomainUndefineFlagsValues{
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM |
		libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | libvirt.DOMAIN_UNDEFINE_TPM, // libvirt 8.9
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM |
		libvirt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA, // libvirt 5.6
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA | libvirt.DOMAIN_UNDEFINE_NVRAM,
	libvirt.DOMAIN_UNDEFINE_MANAGED_SAVE | libvirt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA, // libvirt's test driver
}

func (c *connection) UndefineDomain(uuid string) error {
	return c.domain("undefining", uuid, func(d *libvirt.Domain) (err error) {
		for _, flags := range undefineFlags {
			if err = d.UndefineFlags(flags); !unknownFlag(err) {
				break
			}
		}
		return translate(err)
	})
}

// unknownFlag reports that a call may work with fewer flags.
func unknownFlag(err error) bool {
	return is(err, libvirt.ERR_INVALID_ARG) || is(err, libvirt.ERR_ARGUMENT_UNSUPPORTED)
}

func (c *connection) SetDomainAutostart(uuid string, on bool) error {
	return c.domain("setting autostart of", uuid, func(d *libvirt.Domain) error { return translate(d.SetAutostart(on)) })
}
