// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// serverView shows servers to one caller, at one microversion. What depends on policies is decided
// once for all servers of a list.
type serverView struct {
	x *exchange
	// extended: the attributes for administrators; extraSpecs: those of the flavor; admin: also the
	// details of faults.
	extended, extraSpecs, admin bool
	// hostStatus and hostUnknown: any status of the host, or only that nothing is known of it.
	hostStatus, hostUnknown bool
	// defaultZone is that of hosts that say nothing else.
	defaultZone string
	// changed: as the answer to a change has it, without states and what else was an extension.
	changed bool
}

// newServerView asks the policies, for servers of a project.
func (a *API) newServerView(x *exchange, project string) *serverView {
	return &serverView{
		x:           x,
		defaultZone: a.options.DefaultZone,
		extended:    x.may(ruleExtendedAttrs, project),
		extraSpecs:  x.may(ruleShowExtraSpecs, project),
		admin:       x.isAdmin(),
		hostStatus:  x.since(vHostStatus) && x.may(ruleShowHostStatus, project),
		hostUnknown: x.since(vHostStatus) && x.may(ruleShowHostUnknown, project),
	}
}

// brief is a server as GET /servers shows it.
func (v *serverView) brief(s *cellwire.Server) *object {
	o := &object{text: make([]byte, 0, briefSize)}
	return o.add("id", s.UUID).add("name", s.Name).add("links", v.x.links("servers", s.UUID))
}

// briefSize and wholeSize are what most servers take as JSON, in bytes.
const (
	briefSize = 384
	wholeSize = 2 << 10
)

// whole is a server as GET /servers/detail and GET /servers/{id} show it.
func (v *serverView) whole(s *cellwire.Server) *object {
	x, status := v.x, serverStatus(s)
	updated := s.CreatedAt
	if s.UpdatedAt != nil {
		updated = *s.UpdatedAt
	}
	disk := "MANUAL"
	if s.DiskConfig == "AUTO" {
		disk = "AUTO"
	}
	o := &object{text: make([]byte, 0, wholeSize)}
	o.add("id", s.UUID).add("name", s.Name).add("status", status).add("tenant_id", s.ProjectID).add("user_id", s.UserID).
		add("metadata", s.Metadata).add("hostId", hostID(s)).add("image", v.image(s.ImageRef)).add("flavor", v.flavor(&s.Flavor)).
		add("created", s.CreatedAt).add("updated", updated).add("addresses", new(object)).
		add("accessIPv4", s.AccessIPv4).add("accessIPv6", s.AccessIPv6).add("links", x.links("servers", s.UUID)).
		add("OS-DCF:diskConfig", disk)
	if slices.Contains(hasFault, status) && s.Fault != nil {
		o.add("fault", v.fault(s.Fault))
	}
	if slices.Contains(hasProgress, status) {
		o.add("progress", 0)
	}
	if !v.changed {
		v.addExtensions(o, s)
	}
	if x.since(vLocked) {
		o.add("locked", s.Locked)
	}
	if x.since(vDescription) {
		o.add("description", s.Description)
	}
	if x.since(vTags) {
		o.add("tags", s.Tags)
	}
	if x.since(vTrustedCerts) {
		if len(s.TrustedCerts) > 0 {
			o.add("trusted_image_certificates", s.TrustedCerts)
		} else {
			o.add("trusted_image_certificates", nil)
		}
	}
	return o
}

// addExtensions adds what was an extension once: the answer to a change does not have it before
// 2.75.
func (v *serverView) addExtensions(o *object, s *cellwire.Server) {
	configDrive := ""
	if s.ConfigDrive {
		configDrive = "True"
	}
	o.add("OS-EXT-AZ:availability_zone", v.zone(s)).add("config_drive", configDrive).add("key_name", orNull(s.KeyName)).
		add("OS-SRV-USG:launched_at", stamp(s.LaunchedAt)).add("OS-SRV-USG:terminated_at", stamp(s.TerminatedAt))
	if v.extended {
		v.addExtended(o, s)
	}
	o.add("OS-EXT-STS:task_state", orNull(s.TaskState)).add("OS-EXT-STS:vm_state", orNull(s.VMState)).add("OS-EXT-STS:power_state", int(s.PowerState)).
		add("os-extended-volumes:volumes_attached", list{})
	if status := hostStatus(s); v.hostStatus || v.hostUnknown && status == statusUnknown {
		o.add("host_status", status)
	}
}

// guestName is what Nova calls the guest of a server, by its number in its cell.
func guestName(s *cellwire.Server) string { return fmt.Sprintf("instance-%08x", s.ID) }

// addExtended adds the attributes for administrators. Before 2.3 there are three of them.
func (v *serverView) addExtended(o *object, s *cellwire.Server) {
	name := ""
	if s.ID > 0 {
		name = guestName(s)
	}
	o.add("OS-EXT-SRV-ATTR:host", orNull(s.Host)).add("OS-EXT-SRV-ATTR:instance_name", name).
		add("OS-EXT-SRV-ATTR:hypervisor_hostname", orNull(s.Node))
	if !v.x.since(vExtendedAttributes) {
		return
	}
	o.add("OS-EXT-SRV-ATTR:reservation_id", s.Reservation).add("OS-EXT-SRV-ATTR:launch_index", s.LaunchIndex).
		add("OS-EXT-SRV-ATTR:hostname", s.Hostname).add("OS-EXT-SRV-ATTR:kernel_id", "").add("OS-EXT-SRV-ATTR:ramdisk_id", "").
		add("OS-EXT-SRV-ATTR:root_device_name", nil).add("OS-EXT-SRV-ATTR:user_data", orNull(s.UserData))
}

// unknownBrief is a server of a cell that is down, as GET /servers shows it.
func (v *serverView) unknownBrief(m *apidb.Mapping) *object {
	return new(object).add("id", m.InstanceUUID).add("status", statusUnknown).add("links", v.x.links("servers", m.InstanceUUID))
}

// unknown is a server of a cell that is down, as GET /servers/detail shows it.
func (v *serverView) unknown(m *apidb.Mapping) *object {
	return new(object).add("id", m.InstanceUUID).add("status", statusUnknown).add("tenant_id", m.ProjectID).
		add("created", m.CreatedAt).add("links", v.x.links("servers", m.InstanceUUID))
}

// unknownWhole is a server of a cell that is down, as GET /servers/{id} shows it: with what was
// asked for when it was made.
func (v *serverView) unknownWhole(m *apidb.Mapping, spec *apidb.RequestSpec) *object {
	zone, user := spec.Zone, spec.UserID
	if zone == "" {
		zone = statusUnknown
	}
	if user == "" {
		user = statusUnknown
	}
	return v.unknown(m).add("image", v.image(spec.ImageRef)).add("flavor", v.flavor(&spec.Flavor)).
		add("OS-EXT-AZ:availability_zone", zone).add("OS-EXT-STS:power_state", int(plugins.PowerNoState)).add("user_id", user)
}

// noImage is the id of the image of servers that were booted from none: their disk is empty, or
// they have no disk. Nova's "" is for servers that were booted from a volume, which clients say
// then; they print any id as it is.
const noImage = "no-image"

// image is a reference.
func (v *serverView) image(ref string) *object {
	if ref == "" {
		ref = noImage
	}
	return v.x.bookmarked("images", path.Base(ref))
}

// flavor is a reference before 2.47, and since then the flavor as it was.
func (v *serverView) flavor(f *cellwire.Flavor) *object {
	if !v.x.since(vFlavorEmbedded) {
		return v.x.bookmarked("flavors", f.ID)
	}
	o := new(object).add("vcpus", f.VCPUs).add("ram", f.MemoryMB).add("disk", f.RootGB).add("ephemeral", f.EphemeralGB).
		add("swap", f.SwapMB).add("original_name", f.Name)
	if v.extraSpecs {
		o.add("extra_specs", f.ExtraSpecs)
	}
	return o
}

// fault is why the server is in error. Its details are for administrators, unless it is a refusal
// of what was asked for.
func (v *serverView) fault(f *cellwire.Fault) *object {
	o := new(object).add("code", f.Code).add("created", f.Created).add("message", f.Message)
	if f.Details != "" && (v.admin || f.Code != 500) {
		o.add("details", f.Details)
	}
	return o
}

// zone is the availability zone: that of its host, or the one that was asked for.
func (v *serverView) zone(s *cellwire.Server) string {
	if s.Zone == "" && s.Host != "" {
		return v.defaultZone
	}
	return s.Zone
}

// hostID says to a project which of its servers are on the same host, and not on which.
func hostID(s *cellwire.Server) string {
	if s.Host == "" {
		return ""
	}
	sum := sha256.Sum224([]byte(s.ProjectID + s.Host))
	return hex.EncodeToString(sum[:])
}
