// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"fmt"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
)

// Domains joins the list with the states. A domain that came or went between the two calls has no
// state: whether it runs stands in for it.
func (c *libvirtConn) Domains(want func(Domain) bool) ([]Domain, error) {
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
	domains := make([]Domain, 0, len(list))
	for i := range list {
		d, err := fromList(&list[i], states)
		if err != nil {
			return nil, err
		}
		if want != nil && want(d) {
			d.XML, err = list[i].GetXMLDesc(0)
			if isCode(err, libvirt.ERR_NO_DOMAIN) {
				continue // it went meanwhile
			}
			if err != nil {
				return nil, fmt.Errorf("describing domain %q: %w", d.Name, translate(err))
			}
		}
		domains = append(domains, d)
	}
	slices.SortFunc(domains, func(a, b Domain) int { return strings.Compare(a.UUID, b.UUID) })
	return domains, nil
}

// fromList returns what a list says about a domain, without a call to the daemon.
func fromList(l *libvirt.Domain, states map[string]domainState) (d Domain, err error) {
	if d.UUID, err = l.GetUUIDString(); err != nil {
		return d, fmt.Errorf("reading a listed domain: %w", err)
	}
	if d.Name, err = l.GetName(); err != nil {
		return d, fmt.Errorf("reading the listed domain %s: %w", d.UUID, err)
	}
	d.ID, d.State = NotRunning, ShutOff
	if id, err := l.GetID(); err == nil {
		d.ID, d.State = int(id), Running
	}
	if s, ok := states[d.UUID]; ok {
		d.State, d.Reason = s.state, s.reason
	}
	return d, nil
}

func (c *libvirtConn) DomainXML(uuid string) (text string, err error) {
	err = c.domain("describing", uuid,
		func(d *libvirt.Domain) (err error) { text, err = d.GetXMLDesc(0); return translate(err) })
	return text, err
}

// domain does something with one domain.
func (c *libvirtConn) domain(what, uuid string, f func(*libvirt.Domain) error) error {
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

func (c *libvirtConn) DefineDomain(xml string) (string, error) {
	d, err := c.c.DomainDefineXML(xml)
	if err != nil {
		return "", fmt.Errorf("defining a domain: %w", describeRefusal(err))
	}
	defer func() { _ = d.Free() }()
	return d.GetUUIDString()
}

func (c *libvirtConn) StartDomain(uuid string) error {
	return c.domain("starting", uuid, func(d *libvirt.Domain) error { return describeRefusal(d.Create()) })
}

func (c *libvirtConn) ResumeDomain(uuid string) error {
	return c.domain("resuming", uuid, func(d *libvirt.Domain) error { return translate(d.Resume()) })
}

func (c *libvirtConn) ShutdownDomain(uuid string) error {
	return c.domain("shutting down", uuid, func(d *libvirt.Domain) error { return translate(d.Shutdown()) })
}

func (c *libvirtConn) RebootDomain(uuid string) error {
	return c.domain("rebooting", uuid,
		func(d *libvirt.Domain) error { return translate(d.Reboot(libvirt.DOMAIN_REBOOT_DEFAULT)) })
}

func (c *libvirtConn) DestroyDomain(uuid string) error {
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

func (c *libvirtConn) UndefineDomain(uuid string) error {
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
	return isCode(err, libvirt.ERR_INVALID_ARG) || isCode(err, libvirt.ERR_ARGUMENT_UNSUPPORTED)
}

func (c *libvirtConn) SetDomainAutostart(uuid string, on bool) error {
	return c.domain("setting autostart of", uuid,
		func(d *libvirt.Domain) error { return translate(d.SetAutostart(on)) })
}
