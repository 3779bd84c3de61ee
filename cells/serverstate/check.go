// SPDX-License-Identifier: Apache-2.0

package serverstate

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins"
)

// MaxName bounds names, as Nova's columns do.
const MaxName = 255

var powerStates = []plugins.PowerState{plugins.PowerNoState, plugins.PowerRunning, plugins.PowerPaused,
	plugins.PowerShutdown, plugins.PowerCrashed, plugins.PowerSuspended}

// CheckUUID refuses what is not a uuid in its canonical form: 36 characters, lower case.
func CheckUUID(s string) error {
	if len(s) != 36 || strings.ToLower(s) != s || uuid.Validate(s) != nil {
		return Invalid("%q is not a uuid in its canonical form", textutil.Truncate(s, 64))
	}
	return nil
}

// CheckUUIDs refuses a list with anything that CheckUUID refuses, or with more than limit entries.
func CheckUUIDs(list []string, limit int) error {
	if len(list) > limit {
		return Invalid("%d uuids are more than the %d that are taken at once", len(list), limit)
	}
	for _, s := range list {
		if err := CheckUUID(s); err != nil {
			return err
		}
	}
	return nil
}

// CheckHost refuses a text that cannot be the name of a host; see [CheckName].
func CheckHost(host string) error { return CheckName("host", host) }

// CheckName refuses a text that cannot be the name of a host or a node; what is "host" or "node",
// for the message.
func CheckName(what, name string) error {
	if name == "" || len(name) > MaxName || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' }) {
		return Invalid("%q is no name of a %s: it has 1 to %d bytes, in UTF-8, none of them a control "+
			"character or a slash", textutil.Truncate(name, 64), what, MaxName)
	}
	return nil
}

// CheckInsert refuses a server that cannot be inserted. It must be a server to build on a host, or
// a server in error without a host.
func CheckInsert(s cellwire.Server) error {
	if err := CheckUUID(s.UUID); err != nil {
		return err
	}
	if err := checkTexts(s); err != nil {
		return err
	}
	switch {
	case s.ProjectID == "":
		return Invalid("server %s needs a project_id", s.UUID)
	case s.CreatedAt.IsZero():
		return Invalid("server %s needs a created_at", s.UUID)
	case s.UpdatedAt != nil || s.LaunchedAt != nil || s.TerminatedAt != nil || s.DeletedAt != nil || s.Deleted:
		return Invalid("server %s has an update, launch or deletion time, but is not inserted yet", s.UUID)
	case s.Flavor.VCPUs < 0 || s.Flavor.MemoryMB < 0 || s.Flavor.VCPUs > maxAmount || s.Flavor.MemoryMB > maxAmount:
		return Invalid("the flavor of server %s has %d vcpus and %d MiB", s.UUID, s.Flavor.VCPUs, s.Flavor.MemoryMB)
	case s.Retries < 0 || s.Retries > maxRetries:
		return Invalid("server %s may be built on %d other hosts, not on 0 to %d", s.UUID, s.Retries, maxRetries)
	case s.PowerState != plugins.PowerNoState:
		return Invalid("server %s has a power state, but is not built yet", s.UUID)
	case s.VMState == cellwire.VMBuilding &&
		(s.TaskState == "" || s.TaskState == cellwire.TaskScheduling || s.TaskState == cellwire.TaskSpawning):
		if err := CheckHost(s.Host); err != nil {
			return err
		}
		if err := CheckName("node", s.Node); err != nil {
			return err
		}
		if s.NodeUUID != "" {
			return CheckUUID(s.NodeUUID)
		}
		return nil
	case s.VMState == cellwire.VMError && s.TaskState == "" && s.Host == "" && s.Node == "":
		return nil
	}
	return Invalid("server %s cannot be inserted with vm_state %q, task_state %q, host %q",
		s.UUID, textutil.Truncate(s.VMState, 64), textutil.Truncate(s.TaskState, 64), textutil.Truncate(s.Host, 64))
}

// checkTexts refuses a server with a text that the columns of some engine do not take.
func checkTexts(s cellwire.Server) error {
	description := ""
	if s.Description != nil {
		description = *s.Description
	}
	for _, c := range []struct {
		what, text string
		maxBytes   int
	}{
		{"project_id", s.ProjectID, MaxName}, {"user_id", s.UserID, MaxName}, {"name", s.Name, 4 * MaxName},
		{"description", description, 4 * MaxName},
		{"hostname", s.Hostname, MaxName}, {"image_ref", s.ImageRef, MaxName},
		{"id of the flavor", s.Flavor.ID, MaxName}, {"availability_zone", s.Zone, MaxName},
		{"disk_config", s.DiskConfig, MaxName}, {"access_ip_v4", s.AccessIPv4, MaxName},
		{"access_ip_v6", s.AccessIPv6, MaxName},
		{"reservation_id", s.Reservation, MaxName}, {"key_name", s.KeyName, MaxName},
		{"key_data", s.KeyData, plugins.MaxPublicKey},
	} {
		if len(c.text) > c.maxBytes || !Storable(c.text) {
			return Invalid("the %s of server %s has more than %d bytes, or is no UTF-8, or has the character 0",
				c.what, s.UUID, c.maxBytes)
		}
	}
	return nil
}

// maxRetries bounds on how many other hosts a server may be built.
const maxRetries = 1000

// maxAmount bounds vcpus and MiB of one server, so that no sum of them overflows.
const maxAmount = 1 << 31

// CheckReport refuses a report with values that no agent sends.
func CheckReport(r cellwire.HostReport) error {
	if len(r.Nodes) > cellwire.MaxReports {
		return Invalid("%d nodes are more than the %d that a host may have", len(r.Nodes), cellwire.MaxReports)
	}
	if len(r.Version) > MaxName || !Storable(r.Version) {
		return Invalid("the version has more than %d bytes, or is no UTF-8, or has the character 0", MaxName)
	}
	if err := checkProcess(r); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, n := range r.Nodes {
		if err := CheckUUID(n.UUID); err != nil {
			return err
		}
		if err := CheckName("node", n.Name); err != nil {
			return err
		}
		if err := errors.Join(checkAbilities(n), checkDetails(n)); err != nil {
			return err
		}
		if seen[n.UUID] || seen["/"+n.Name] { // no name has a slash
			return Invalid("node %s (%s) is reported twice", n.Name, n.UUID)
		}
		seen[n.UUID], seen["/"+n.Name] = true, true
	}
	return nil
}

// checkDetails refuses details that no node has.
func checkDetails(n cellwire.ReportedNode) error {
	d := n.Details
	switch {
	case d == nil:
		return nil
	case len(d.HypervisorType) > cellwire.MaxHypervisorType || !Storable(d.HypervisorType):
		return Invalid("node %s: the type of its hypervisor has more than %d bytes, or is no UTF-8, or has the "+
			"character 0", n.UUID, cellwire.MaxHypervisorType)
	case d.HypervisorVersion < 0 || d.HypervisorVersion > math.MaxInt32:
		return Invalid("node %s: the version of its hypervisor is %d, not 0 to %d",
			n.UUID, d.HypervisorVersion, math.MaxInt32)
	case d.UnknownGuests < 0 || d.UnknownGuests > math.MaxInt32:
		return Invalid("node %s has %d guests that no server is about, not 0 to %d",
			n.UUID, d.UnknownGuests, math.MaxInt32)
	case d.HostIP == "":
		return nil
	}
	if ip, err := netip.ParseAddr(d.HostIP); err != nil || ip.String() != d.HostIP || ip.Zone() != "" {
		return Invalid("node %s: %.64q is not the address of a host in its canonical form", n.UUID, d.HostIP)
	}
	return nil
}

// checkAbilities refuses what no node can do.
func checkAbilities(n cellwire.ReportedNode) error {
	if len(n.Abilities) > cellwire.MaxAbilities {
		return Invalid("node %s has %d abilities, more than %d", n.UUID, len(n.Abilities), cellwire.MaxAbilities)
	}
	for _, name := range n.Abilities {
		if !cellwire.IsAbility(name) {
			return Invalid(
				"node %s: an ability is %.100q, not of lower-case letters, digits and hyphens, at most %d of them",
				n.UUID, name, cellwire.MaxAbility)
		}
	}
	return nil
}

// checkProcess refuses what no agent says of itself.
func checkProcess(r cellwire.HostReport) error {
	if r.Turn < 0 {
		return Invalid("the turn is %d", r.Turn)
	}
	if r.Process == nil {
		return nil
	}
	if err := r.Process.Check(); err != nil {
		return Invalid("%s", err)
	}
	return nil
}

// Storable reports whether a text is one that all engines keep.
func Storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// Invalid is the refusal (bad request) of a request that means nothing.
func Invalid(format string, args ...any) error {
	return &cellwire.Error{Status: 400, Code: cellwire.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}
