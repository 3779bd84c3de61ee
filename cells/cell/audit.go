// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/auditlog"
)

// changes reports whether a call can change anything.
func (c *call) changes() bool {
	return c.method != http.MethodGet && !strings.HasSuffix(c.path, "/query") && !strings.HasSuffix(c.path, "/states")
}

// audit has what the call changes recorded. While the audit log is required and cannot be written,
// changes of the compute API are refused; what agents report is true whether it is recorded or not.
func (x *exchange) audit(one *call) (*auditlog.Trail, error) {
	log := x.cell.config.Audit
	if log == nil || !one.changes() {
		return nil, nil // a nil Trail gathers nothing
	}
	record := auditlog.Request(&x.Exchange)
	if one.need == hostAgentOnly {
		record.Host, record.User, record.Project = x.R.PathValue("host"), "", ""
	} else {
		if log.Refusal() != nil {
			return nil, errUnrecorded
		}
		origin := cellwire.OriginOf(x.requestContext())
		record.GlobalRequestID, record.User, record.Project = origin.RequestID, origin.UserID, origin.ProjectID
	}
	ctx, trail := log.Begin(x.requestContext(), record)
	watch := changesTo(func(c auditlog.Change) { log.AddChanges(ctx, record, c) })
	watch.Before = func(tell func(*celldb.Watch)) error {
		var intended []auditlog.Change
		tell(changesTo(func(c auditlog.Change) { intended = append(intended, c) }))
		if err := trail.Intend(ctx, intended...); err != nil && one.need != hostAgentOnly {
			return errUnrecorded
		}
		return nil
	}
	x.R = x.R.WithContext(celldb.WithWatch(ctx, watch))
	return trail, nil
}

// errUnrecorded is the answer to a change that a required log cannot record.
var errUnrecorded = &cellwire.Error{
	Status:  http.StatusServiceUnavailable,
	Code:    cellwire.CodeUnavailable,
	Message: "The cell's audit log cannot be written to, so that changes are refused.",
}

// changesTo is a watch that makes changes of what it gets.
func changesTo(add func(auditlog.Change)) *celldb.Watch {
	note := func(c auditlog.Change, before, after any) {
		if c, differs := c.Differs(before, after); differs {
			add(c)
		}
	}
	return &celldb.Watch{
		Server: func(before, after *cellwire.Server) {
			shown := after
			if shown == nil {
				shown = before
			}
			note(
				auditlog.Change{Kind: auditlog.KindServer, ID: shown.UUID, Name: shown.Name, Provider: shown.NodeUUID,
					ProviderName: shown.Node, Host: shown.Host},
				serverOf(before),
				serverOf(after),
			)
		},
		Service: func(before, after *cellwire.Service) {
			note(auditlog.Change{Kind: auditlog.KindService, ID: before.UUID, Host: before.Host},
				serviceOf(before), serviceOf(after))
			if after != nil {
				note(auditlog.Change{Kind: auditlog.KindService, ID: before.UUID, Host: after.Host},
					map[string]string{"host": before.Host}, map[string]string{"host": after.Host})
			}
		},
		Host: func(host string, r cellwire.HostReport, problems []cellwire.NodeProblem) {
			state := map[string]any{"version": r.Version, "nodes": nodesOf(r), "stopping": r.Stopping}
			if len(problems) > 0 {
				state["node_problems"] = problems
			}
			note(auditlog.Change{Kind: auditlog.KindHostReport, ID: host, Host: host}, nil, state)
		},
	}
}

// serverValue is a server in a record: of user_data the size, of metadata digests of the values, of
// its key the name.
type serverValue struct {
	Name       string            `json:"name"`
	Project    string            `json:"project"`
	User       string            `json:"user"`
	Host       string            `json:"host,omitempty"`
	Node       string            `json:"node,omitempty"`
	VMState    string            `json:"vm_state"`
	TaskState  string            `json:"task_state"`
	PowerState int               `json:"power_state"`
	Hidden     bool              `json:"hidden,omitempty"`
	Deleted    bool              `json:"deleted,omitempty"`
	Flavor     string            `json:"flavor"`
	Image      string            `json:"image,omitempty"`
	Key        string            `json:"key_name,omitempty"`
	UserData   int               `json:"user_data_bytes,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Tags       []string          `json:"tags,omitempty"`
	Fault      string            `json:"fault,omitempty"`
}

func serverOf(s *cellwire.Server) any {
	if s == nil {
		return nil
	}
	v := serverValue{
		Name: s.Name, Project: s.ProjectID, User: s.UserID,
		Host: s.Host, Node: s.Node, VMState: s.VMState, TaskState: s.TaskState, PowerState: int(s.PowerState),
		Hidden: s.Hidden, Deleted: s.Deleted, Flavor: s.Flavor.Name, Image: s.ImageRef, Key: s.KeyName,
		UserData: len(s.UserData), Metadata: digests(s.Metadata), Tags: s.Tags,
	}
	if s.Fault != nil {
		v.Fault = s.Fault.Message
	}
	return v
}

func serviceOf(s *cellwire.Service) any {
	if s == nil {
		return nil
	}
	return map[string]any{"disabled": s.Disabled, "disabled_reason": s.DisabledReason, "forced_down": s.ForcedDown}
}

// nodesOf are the nodes of a report, by uuid.
func nodesOf(r cellwire.HostReport) map[string]string {
	names := make(map[string]string, len(r.Nodes))
	for _, n := range r.Nodes {
		names[n.UUID] = n.Name
	}
	return names
}

// digestKey is of this process: who reads the log cannot guess values by their digests.
var digestKey = rand.Text()

// digests replaces each value of metadata by its digest, because the log must not have what owners
// put there. Equal values have equal digests until the process ends.
func digests(metadata map[string]string) map[string]string {
	out := make(map[string]string, len(metadata))
	for key, value := range metadata {
		mac := hmac.New(sha256.New, []byte(digestKey))
		mac.Write([]byte(value)) // it never fails
		out[key] = "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil)[:8])
	}
	return out
}
