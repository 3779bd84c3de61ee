// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"slices"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/plugins"
)

// View shows servers to one caller, at one microversion. What depends on policies is decided once
// for all servers of a list.
type View struct {
	x *api.Exchange
	// extended: the attributes for administrators; extraSpecs: those of the flavor; admin: also the
	// details of faults.
	extended, extraSpecs, admin bool
	// hostStatus and hostUnknown: any status of the host, or only that nothing is known of it.
	hostStatus, hostUnknown bool
	// defaultZone is the zone that is shown for hosts without one.
	defaultZone string
	// changed: as the answer to a change has it, without states and what else was an extension.
	changed bool
}

// View shows servers of a project to the caller. It asks the policies.
func (s *Servers) View(x *api.Exchange, project string) *View {
	return &View{
		x:           x,
		defaultZone: s.DefaultZone,
		extended:    x.Allows(ruleExtendedAttrs, project),
		extraSpecs:  x.Allows(ruleShowExtraSpecs, project),
		admin:       x.IsAdmin(),
		hostStatus:  x.AtLeast(vHostStatus) && x.Allows(ruleShowHostStatus, project),
		hostUnknown: x.AtLeast(vHostStatus) && x.Allows(ruleShowHostUnknown, project),
	}
}

// ChangedView is [Servers.View] for the answer to a change.
func (s *Servers) ChangedView(x *api.Exchange, project string) *View {
	v := s.View(x, project)
	v.changed = true
	return v
}

// Brief is a server as GET /servers shows it.
func (v *View) Brief(s *cellwire.Server) *api.Object {
	o := api.NewObject(briefSize)
	return o.Add("id", s.UUID).Add("name", s.Name).Add("links", v.x.Links("servers", s.UUID))
}

// Respond answers with a server, from a view. From 2.71 on it says in which server groups it is,
// one or none, also if its cell is down.
func (s *Servers) Respond(x *api.Exchange, status int, m apidb.Mapping, body *api.Object) error {
	if x.AtLeast(vShowGroups) {
		groups := []string{}
		switch g, err := s.Store.ServerGroupOf(x.Context(), m.InstanceUUID); {
		case err == nil:
			groups = append(groups, g.UUID)
		case !errors.Is(err, apidb.ErrNotFound):
			return err
		}
		body.Add("server_groups", groups)
	}
	return x.JSON(status, new(api.Object).Add("server", body))
}

// briefSize and wholeSize are what most servers take as JSON, in bytes.
const (
	briefSize = 384
	wholeSize = 2 << 10
)

// Whole is a server as GET /servers/detail and GET /servers/{id} show it.
func (v *View) Whole(s *cellwire.Server) *api.Object {
	x, status := v.x, statusOf(s)
	updated := s.CreatedAt
	if s.UpdatedAt != nil {
		updated = *s.UpdatedAt
	}
	disk := "MANUAL"
	if s.DiskConfig == "AUTO" {
		disk = "AUTO"
	}
	o := api.NewObject(wholeSize)
	o.Add("id", s.UUID).Add("name", s.Name).Add("status", status).
		Add("tenant_id", s.ProjectID).Add("user_id", s.UserID).
		Add("metadata", s.Metadata).Add("hostId", HostID(s)).Add("image", v.image(s.ImageRef)).
		Add("flavor", v.flavor(&s.Flavor)).
		Add("created", s.CreatedAt).Add("updated", updated).Add("addresses", new(api.Object)).
		Add("accessIPv4", s.AccessIPv4).Add("accessIPv6", s.AccessIPv6).Add("links", x.Links("servers", s.UUID)).
		Add("OS-DCF:diskConfig", disk)
	if slices.Contains(hasFault, status) && s.Fault != nil {
		o.Add("fault", v.fault(s.Fault))
	}
	if slices.Contains(hasProgress, status) {
		o.Add("progress", 0)
	}
	if !v.changed {
		v.addExtensions(o, s)
	}
	if x.AtLeast(vLocked) {
		o.Add("locked", s.Locked)
	}
	if x.AtLeast(api.VDescription) {
		o.Add("description", s.Description)
	}
	if x.AtLeast(api.VTags) {
		o.Add("tags", s.Tags)
	}
	if x.AtLeast(api.VTrustedCerts) {
		if len(s.TrustedCerts) > 0 {
			o.Add("trusted_image_certificates", s.TrustedCerts)
		} else {
			o.Add("trusted_image_certificates", nil)
		}
	}
	return o
}

// addExtensions adds what was an extension once: the answer to a change does not have it before
// 2.75.
func (v *View) addExtensions(o *api.Object, s *cellwire.Server) {
	configDrive := ""
	if s.ConfigDrive {
		configDrive = "True"
	}
	o.Add("OS-EXT-AZ:availability_zone", v.zone(s)).
		Add("config_drive", configDrive).Add("key_name", api.OrNull(s.KeyName)).
		Add("OS-SRV-USG:launched_at", api.Time(s.LaunchedAt)).
		Add("OS-SRV-USG:terminated_at", api.Time(s.TerminatedAt))
	if v.extended {
		v.addExtended(o, s)
	}
	o.Add("OS-EXT-STS:task_state", api.OrNull(s.TaskState)).Add("OS-EXT-STS:vm_state", api.OrNull(s.VMState)).
		Add("OS-EXT-STS:power_state", int(s.PowerState)).
		Add("os-extended-volumes:volumes_attached", api.List{})
	if status := hostStatus(s); v.hostStatus || v.hostUnknown && status == api.StatusUnknown {
		o.Add("host_status", status)
	}
}

// addExtended adds the attributes for administrators. Before 2.3 there are three of them.
func (v *View) addExtended(o *api.Object, s *cellwire.Server) {
	name := ""
	if s.ID > 0 {
		name = s.GuestName()
	}
	o.Add("OS-EXT-SRV-ATTR:host", api.OrNull(s.Host)).Add("OS-EXT-SRV-ATTR:instance_name", name).
		Add("OS-EXT-SRV-ATTR:hypervisor_hostname", api.OrNull(s.Node))
	if !v.x.AtLeast(vExtendedAttributes) {
		return
	}
	o.Add("OS-EXT-SRV-ATTR:reservation_id", s.Reservation).Add("OS-EXT-SRV-ATTR:launch_index", s.LaunchIndex).
		Add("OS-EXT-SRV-ATTR:hostname", s.Hostname).Add("OS-EXT-SRV-ATTR:kernel_id", "").
		Add("OS-EXT-SRV-ATTR:ramdisk_id", "").
		Add("OS-EXT-SRV-ATTR:root_device_name", nil).Add("OS-EXT-SRV-ATTR:user_data", api.OrNull(s.UserData))
}

// UnknownBrief is a server of a cell that is down, as GET /servers shows it.
func (v *View) UnknownBrief(m *apidb.Mapping) *api.Object {
	return new(api.Object).Add("id", m.InstanceUUID).
		Add("status", api.StatusUnknown).Add("links", v.x.Links("servers", m.InstanceUUID))
}

// Unknown is a server of a cell that is down, as GET /servers/detail shows it.
func (v *View) Unknown(m *apidb.Mapping) *api.Object {
	return new(api.Object).Add("id", m.InstanceUUID).Add("status", api.StatusUnknown).Add("tenant_id", m.ProjectID).
		Add("created", m.CreatedAt).Add("links", v.x.Links("servers", m.InstanceUUID))
}

// UnknownWhole is a server of a cell that is down, as GET /servers/{id} shows it: with what was
// asked for when it was made.
func (v *View) UnknownWhole(m *apidb.Mapping, spec *apidb.RequestSpec) *api.Object {
	zone, user := spec.Zone, spec.UserID
	if zone == "" {
		zone = api.StatusUnknown
	}
	if user == "" {
		user = api.StatusUnknown
	}
	return v.Unknown(m).Add("image", v.image(spec.ImageRef)).Add("flavor", v.flavor(&spec.Flavor)).
		Add("OS-EXT-AZ:availability_zone", zone).
		Add("OS-EXT-STS:power_state", int(plugins.PowerNoState)).Add("user_id", user)
}

// noImage is the id of the image of servers that were booted from none: their disk is empty, or
// they have no disk. Nova's "" is for servers that were booted from a volume, which clients say
// then; they print any id as it is.
const noImage = "no-image"

// image is a reference.
func (v *View) image(ref string) *api.Object {
	if ref == "" {
		ref = noImage
	}
	return v.x.Bookmarked("images", path.Base(ref))
}

// flavor is a reference before 2.47, and since then the flavor as it was.
func (v *View) flavor(f *cellwire.Flavor) *api.Object {
	if !v.x.AtLeast(vFlavorEmbedded) {
		return v.x.Bookmarked("flavors", f.ID)
	}
	o := new(api.Object).Add("vcpus", f.VCPUs).Add("ram", f.MemoryMB).Add("disk", f.RootGB).
		Add("ephemeral", f.EphemeralGB).
		Add("swap", f.SwapMB).Add("original_name", f.Name)
	if v.extraSpecs {
		o.Add("extra_specs", f.ExtraSpecs)
	}
	return o
}

// fault is why the server is in error. Its details are for administrators, unless it is a refusal
// of what was asked for.
func (v *View) fault(f *cellwire.Fault) *api.Object {
	o := new(api.Object).Add("code", f.Code).Add("created", f.Created).Add("message", f.Message)
	if f.Details != "" && (v.admin || f.Code != 500) {
		o.Add("details", f.Details)
	}
	return o
}

// zone is the availability zone: that of its host, or the one that was asked for.
func (v *View) zone(s *cellwire.Server) string {
	if s.Zone == "" && s.Host != "" {
		return v.defaultZone
	}
	return s.Zone
}

// HostID says to a project which of its servers are on the same host, and not on which.
func HostID(s *cellwire.Server) string {
	if s.Host == "" {
		return ""
	}
	sum := sha256.Sum224([]byte(s.ProjectID + s.Host))
	return hex.EncodeToString(sum[:])
}
