// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMigrateAndEvacuate: evacuate, migrate, confirmResize and revertResize, in states, by callers
// and with bodies that allow them or do not, in Nova's words and order.
func TestMigrateAndEvacuate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		evacuate = `{"evacuate":{}}`
		migrate  = `{"migrate":null}`
		confirm  = `{"confirmResize":null}`
		revert   = `{"revertResize":null}`
	)
	gone := "itemNotFound: Instance " + uuid(1) + " could not be found."
	cannot := func(action, kind, state string) string {
		return "conflictingRequest: Cannot '" + action +
			"' instance " + uuid(1) + " while it is in " + kind + " " + state
	}
	policy := func(rule string) string {
		return "forbidden: Policy doesn't allow os_compute_api:" + rule + " to be performed."
	}
	refused := func(code cellwire.Code, message string) error {
		return &cellwire.Error{Status: 409, Code: code, Message: message}
	}
	for _, tt := range []struct {
		name, who, version, body, vm, task string
		up, never, unplaced                bool
		err                                error
		status                             int
		says                               string
		asks                               string // of the scheduler
		answers                            string // a pattern
	}{
		{name: "evacuated", body: evacuate, status: 200, asks: `evacuation to ""`},
		{name: "evacuated from error", body: evacuate, vm: cellwire.VMError, status: 200, asks: `evacuation to ""`},
		{name: "evacuated while it is stopped", body: evacuate, vm: cellwire.VMStopped,
			status: 200, asks: `evacuation to ""`},
		{name: "evacuated to a host", body: `{"evacuate":{"host":"h2"}}`, status: 200, asks: `evacuation to "h2"`},
		{name: "forced to a host", version: "2.29", body: `{"evacuate":{"host":"h2","force":true}}`,
			status: 200, asks: `evacuation to "h2"`},
		{name: "evacuated as at first", version: "2.1", body: `{"evacuate":{"onSharedStorage":"False"}}`, status: 200,
			asks: `evacuation to ""`, answers: `^{"adminPass": ?"\w{12}"}$`},
		{name: "evacuated as at first with a password",
			version: "2.13", body: `{"evacuate":{"onSharedStorage":false,"adminPass":"p"}}`, status: 200,
			asks: `evacuation to ""`, answers: `^{"adminPass": ?"p"}$`},
		{name: "evacuated on shared storage", version: "2.13", body: `{"evacuate":{"onSharedStorage":true}}`,
			status: 200, asks: `evacuation to ""`, answers: `^{"adminPass": ?null}$`},
		{name: "with a password on shared storage",
			version: "2.13", body: `{"evacuate":{"onSharedStorage":true,"adminPass":"p"}}`, status: 400,
			says: "badRequest: admin password can't be changed on existing disk"},
		{name: "without storage at first", version: "2.13",
			body: evacuate, status: 400,
			says: "badRequest: Invalid input for field/attribute evacuate. Value: {}. 'onSharedStorage' is a " +
				"required property"},
		{name: "with storage later", version: "2.14", body: `{"evacuate":{"onSharedStorage":true}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute evacuate. Value: {'onSharedStorage': True}. " +
				"Additional properties are not allowed ('onSharedStorage' was unexpected)"},
		{name: "forced too late", version: "2.68", body: `{"evacuate":{"host":"h2","force":true}}`, status: 400,
			says: "badRequest: Invalid input for field/attribute evacuate. Value: {'host': 'h2', 'force': True}. " +
				"Additional properties are not allowed ('force' was unexpected)"},
		{name: "forced to nowhere", version: "2.67", body: `{"evacuate":{"force":true}}`, status: 400,
			says: "badRequest: Can't force to a non-provided destination"},
		{name: "evacuated to a host that is unknown", body: `{"evacuate":{"host":"h9"}}`, status: 404,
			says: "itemNotFound: Compute host h9 not found."},
		{name: "evacuated to its own host", body: `{"evacuate":{"host":"h1"}}`, status: 400,
			says: "badRequest: The target host can't be the same one."},
		{name: "evacuated while its host is up", body: evacuate, up: true,
			err:    refused(cellwire.CodeInUse, "Compute service of h1 is still in use. It does not report the node."),
			status: 400,
			says:   "badRequest: Compute service of h1 is still in use. It does not report the node."},
		{name: "evacuated as its host comes back",
			body: evacuate, err: refused(cellwire.CodeInUse, "Compute service of h1 is still in use."), status: 400,
			says: "badRequest: Compute service of h1 is still in use."},
		{name: "evacuated while it is rebooted", body: evacuate, task: "rebooting", up: true, status: 409,
			says: cannot("evacuate", "task_state", "rebooting")},
		{name: "evacuated although it was to be rebooted",
			body: evacuate, task: "rebooting", status: 200, asks: `evacuation to ""`},
		{name: "evacuated while it is resized", body: evacuate, vm: cellwire.VMResized, status: 409,
			says: cannot("evacuate", "vm_state", "resized")},
		{name: "evacuated before it is placed", body: evacuate, vm: cellwire.VMBuilding, never: true, unplaced: true,
			status: 409, says: cannot("evacuate", "vm_state", "building")},
		{name: "evacuated from a host that cannot",
			body: evacuate, err: cellwire.Unable(uuid(1), "migrate"), status: 409,
			says: "conflictingRequest: " + cellwire.Unable(uuid(1), "migrate").Message},
		{name: "evacuated by its owner", who: member, body: evacuate, status: 403, says: policy("os-evacuate")},
		{name: "evacuated by another project", who: member2, body: evacuate, status: 404, says: gone},

		{name: "migrated", body: migrate, up: true, status: 202, asks: `migration to ""`},
		{name: "migrated as at first", version: "2.55", body: `{"migrate":{"host":"h2"}}`, up: true,
			status: 202, asks: `migration to ""`},
		{name: "migrated while it is stopped", body: `{"migrate":{}}`, vm: cellwire.VMStopped, up: true,
			status: 202, asks: `migration to ""`},
		{name: "migrated to a host", body: `{"migrate":{"host":"h2"}}`, up: true,
			status: 202, asks: `migration to "h2"`},
		{name: "migrated to none", body: `{"migrate":{"host":null}}`, up: true, status: 202, asks: `migration to ""`},
		{name: "migrated to its own host", body: `{"migrate":{"host":"h1"}}`, up: true, status: 400,
			says: "badRequest: Cannot migrate to the host where the server exists."},
		{name: "migrated to a host that is unknown", body: `{"migrate":{"host":"h9"}}`, up: true, status: 400,
			says: "badRequest: Compute host h9 could not be found."},
		{name: "migrated otherwise", body: `{"migrate":{"to":"h9"}}`, up: true, status: 400,
			says: "badRequest: Invalid input for field/attribute migrate. Value: {'to': 'h9'}. Additional " +
				"properties are not allowed ('to' was unexpected)"},
		{name: "migrated in error", body: migrate, vm: cellwire.VMError, up: true, status: 409,
			says: cannot("migrate", "vm_state", "error")},
		{name: "migrated from a host that is down",
			body: migrate, status: 409, says: "conflictingRequest: Service is unavailable at this time."},
		{name: "migrated by its owner", who: member, body: migrate, up: true, status: 403,
			says: policy("os-migrate-server:migrate")},
		{name: "migrated by the manager of its project",
			who: manager, body: migrate, up: true, status: 202, asks: `migration to ""`},
		{name: "migrated to a host by the manager of its project", who: manager, body: `{"migrate":{"host":"h2"}}`,
			up: true, status: 403, says: policy("os-migrate-server:migrate:host")},

		{name: "confirmed", who: member, body: confirm, vm: cellwire.VMResized, status: 204, asks: "stays: true"},
		{name: "reverted", who: member, body: revert, vm: cellwire.VMResized, status: 202, asks: "stays: false"},
		{name: "confirmed where it was", who: member,
			body: confirm, status: 409, says: cannot("confirmResize", "vm_state", "active")},
		{name: "confirmed while it is reverted", who: member, body: confirm, vm: cellwire.VMResized,
			task: "resize_reverting", status: 409, says: cannot("confirmResize", "task_state", "resize_reverting")},
		{name: "confirmed twice", who: member, body: confirm, vm: cellwire.VMResized, err: scheduler.ErrNotResized,
			status: 400, says: "badRequest: Instance has not been resized."},
		{name: "confirmed by a reader", who: reader, body: confirm, vm: cellwire.VMResized, status: 403,
			says: policy("servers:confirm_resize")},
		{name: "reverted by a reader", who: reader, body: revert, vm: cellwire.VMResized, status: 403,
			says: policy("servers:revert_resize")},
		{name: "resized", who: member, body: `{"resize":{"flavorRef":"2"}}`, status: 400,
			says: "badRequest: This service does not support the action resize; docs/cells.md lists the calls " +
				"that it has"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCloud(t, Options{})
			boots, _ := c.withCalls()
			boots.err = tt.err
			for n := 1; n <= 2; n++ {
				host := []string{"h1", "h2"}[n-1]
				testproc.Check(t,
					c.store.MapNodes(t.Context(),
						[]apidb.Node{{UUID: uuid(1000 + n), Name: host, Host: host, CellUUID: cellUUID(1)}}))
			}
			s := server(1, "s1")
			s.VMState, s.TaskState, s.HostUp = tt.vm, tt.task, tt.up
			if !tt.never {
				s.LaunchedAt = &start
			}
			cell := 1
			if tt.unplaced {
				cell, s.Host, s.Node = nowhere, "", ""
			}
			c.has(cell, s)
			who, version := tt.who, tt.version
			if who == "" {
				who = admin3
			}
			if version == "" {
				version = "2.71"
			}
			got := c.do(who, version, "POST", "/v2.1/servers/"+uuid(1)+"/action", tt.body)
			if got.status != tt.status || got.message() != tt.says {
				t.Errorf("%d %s, not %d %s", got.status, got.message(), tt.status, tt.says)
			}
			if tt.says == "" && !regexp.MustCompile(tt.answers).MatchString(got.text) || tt.says == "" &&
				tt.answers == "" && got.text != "" {
				t.Errorf("the answer is %q", got.text)
			}
			asked := strings.ReplaceAll(strings.Join(boots.moved, ", "), uuid(1)+" ", "")
			testproc.Equal(t, asked, tt.asks, "the scheduler was asked for %q")
		})
	}
}
