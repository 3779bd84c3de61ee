// SPDX-License-Identifier: Apache-2.0

package serverstate_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/plugins"
)

// node is the node nN of host hN.
func node(host string) cellwire.MigrationDestination {
	n := strings.TrimPrefix(host, "h")
	return cellwire.MigrationDestination{Host: host, Node: "n" + n, Zone: "z" + n,
		NodeUUID: "5e000000-0000-4000-8000-00000000090" + n}
}

// migrationUUID is that of the nth migration of a server.
func migrationUUID(n int) string { return fmt.Sprintf("5e000000-0000-4000-8000-00000000050%d", n) }

// moving makes a server that moves: "VM/TASK on HOST; TYPE STATUS SOURCE>DESTINATION; ...", with
// the words of record behind TASK, and fault and retry; and with words behind the hosts of a
// migration: was-STATE (before it; none: active), there, missing or asked (of the guest on the
// source), offer, giveback and closed (it is not open). A destination with a question mark is only
// asked for. A server is launched if it is not building, and none of its migrations is a build.
func moving(text string) *serverstate.Record {
	parts := strings.Split(text, "; ")
	words, host, _ := strings.Cut(parts[0], " on ")
	var fault *cellwire.Fault
	if strings.Contains(words, " fault") {
		fault = &cellwire.Fault{Message: "before"}
	}
	retries := strings.Count(words, " retry")
	r := record(strings.NewReplacer(" fault", "", " retry", "").Replace(words))
	s, on := &r.Server, node(host)
	s.Host, s.Node, s.NodeUUID, s.Zone, s.Fault, s.Retries = on.Host, on.Node, on.NodeUUID, on.Zone, fault, retries
	if s.VMState != cellwire.VMBuilding && !strings.Contains(text, "; build ") {
		s.LaunchedAt = &then
	}
	for i, part := range parts[1:] {
		words := strings.Fields(part)
		source, destination, _ := strings.Cut(words[2], ">")
		from, to := node(source), node(destination)
		if asked := strings.TrimSuffix(destination, "?"); asked != destination || asked == "" {
			to = cellwire.MigrationDestination{Host: asked}
		}
		m := &serverstate.Migration{Open: true, Migration: cellwire.Migration{
			UUID: migrationUUID(i), ServerUUID: s.UUID, Type: cellwire.MigrationType(words[0]),
			Status: cellwire.MigrationStatus(words[1]), OldVMState: cellwire.VMActive, CreatedAt: then,
			SourceHost: from.Host, SourceNode: from.Node, SourceNodeUUID: from.NodeUUID, SourceZone: from.Zone,
			DestHost: to.Host, DestNode: to.Node, DestNodeUUID: to.NodeUUID, DestZone: to.Zone,
		}}
		if words[0] == "cold" {
			m.Type = cellwire.MigrationCold
		}
		for _, word := range words[3:] {
			switch word {
			case "there", "missing", "asked":
				m.SourceGuest = cellwire.SourceGuest(word)
			case "offer":
				m.Offer = "offer"
			case "giveback":
				m.GiveBack = true
			case "closed":
				m.Open = false
			default:
				m.OldVMState = strings.TrimPrefix(word, "was-")
			}
		}
		r.Migrations = append(r.Migrations, m)
	}
	return r
}

// movingText is what moving reads. Of a host with the node of another one it has both.
func movingText(r *serverstate.Record) string {
	at := func(host, node_, uuid, zone string) string {
		if n := (cellwire.MigrationDestination{Host: host, Node: node_, NodeUUID: uuid, Zone: zone}); n != node(host) {
			return fmt.Sprint(n)
		}
		return host
	}
	add := func(text, word string, is bool) string {
		if is {
			return text + " " + word
		}
		return text
	}
	s, shown := &r.Server, *r
	shown.Server.LaunchedAt = nil
	out := add(text(&shown), "fault", s.Fault != nil) + strings.Repeat(" retry", s.Retries)
	out += " on " + at(s.Host, s.Node, s.NodeUUID, s.Zone)
	for _, m := range r.Migrations {
		kind, to := string(m.Type), m.DestHost
		if m.Type == cellwire.MigrationCold {
			kind = "cold"
		}
		switch {
		case m.DestNode != "":
			to = at(m.DestHost, m.DestNode, m.DestNodeUUID, m.DestZone)
		case to != "":
			to += "?"
		}
		out += fmt.Sprintf("; %s %s %s>%s", kind, m.Status,
			at(m.SourceHost, m.SourceNode, m.SourceNodeUUID, m.SourceZone), to)
		out = add(out, "was-"+m.OldVMState, m.OldVMState != cellwire.VMActive)
		out = add(out, string(m.SourceGuest), m.SourceGuest != "")
		out = add(out, "offer", m.Offer != "")
		out = add(out, "giveback", m.GiveBack)
		out = add(out, "closed", !m.Open)
	}
	return out
}

// wantText is what is wanted of a host: "WANT (STATUS)" if a migration wants it, and idle if
// nothing is to be done about the guest that the host may have.
func wantText(r *serverstate.Record, host string) string {
	want, m := r.WantOn(host)
	switch {
	case m != nil:
		return fmt.Sprintf("%s (%s)", want, m.Status)
	case want == "" && r.IdleOn(host):
		return string(cellwire.WantIdle)
	}
	return string(want)
}

// happens has an event happen to a server; refused is why it is refused. An event is one of:
//
//	migrate [to HOST], evacuate [to HOST]   the next migration; again: the first one
//	to HOST, unplaced [claimed], given-back [fenced], confirm, revert, abort, nothing
//	                                        a step of the first migration
//	HOST KIND [fault]                       a report about a guest that runs, or that is off,
//	                                        paused, missing or broken; one that departed is off
//	delete, soft, reset, stop               what is asked for of any server
//
// A word -HOST says that the host is down, second that the event is about the second migration.
// What a destination lacks (nameless, anonymous, otherwise) and what is wrong with an offer (long,
// longest, binary) are words, too.
func happens(r *serverstate.Record, event string) (changed bool, refused string) {
	words := strings.Fields(event)
	has := func(word string) bool { return slices.Contains(words, word) }
	up := func(host string) bool { return !has("-" + host) }
	uuid := migrationUUID(0)
	if has("second") {
		uuid = migrationUUID(1)
	}
	next := migrationUUID(len(r.Migrations))
	result := func(changed bool, err error) (bool, string) {
		if err != nil {
			return changed, err.Error()
		}
		return changed, ""
	}
	step := func(step cellwire.MigrationStep) (bool, string) { return result(r.Step(uuid, step, up, now)) }
	switch words[0] {
	case "migrate", "evacuate":
		q := cellwire.MigrateRequest{UUID: next, Type: cellwire.MigrationCold}
		if words[0] == "evacuate" {
			q.Type = cellwire.MigrationEvacuation
		}
		if has("again") {
			q.UUID = uuid
		}
		if has("to") {
			q.Host = words[2]
		}
		return result(r.Migrate(q, cellwire.Origin{}, up(r.Server.Host), now))
	case "to":
		to := node(words[1])
		switch {
		case has("nameless"):
			to.Node = ""
		case has("anonymous"):
			to.NodeUUID = ""
		case has("otherwise"):
			to.NodeUUID = node("h9").NodeUUID
		}
		return step(cellwire.MigrationStep{Destination: &to})
	case "unplaced":
		return step(cellwire.MigrationStep{Failed: &cellwire.Fault{Message: "no host", Details: "why"},
			GiveBack: has("claimed")})
	case "given-back":
		return step(cellwire.MigrationStep{GivenBack: true, Fenced: has("fenced")})
	case "confirm":
		return step(cellwire.MigrationStep{Confirm: true})
	case "revert":
		return step(cellwire.MigrationStep{Revert: true})
	case "abort":
		return step(cellwire.MigrationStep{Abort: next})
	case "nothing":
		return step(cellwire.MigrationStep{})
	case "delete":
		changed, _ := r.Delete(cellwire.DeleteNormal, up(r.Server.Host), now)
		return changed, ""
	case "soft":
		if err := r.CheckSoftDelete(); err != nil {
			return false, err.Error()
		}
		changed, _ := r.Delete(cellwire.DeleteSoft, up(r.Server.Host), now)
		return changed, ""
	case "reset":
		return result(r.Reset(cellwire.ResetRequest{VMState: cellwire.VMError}))
	case "stop":
		return result(r.Power(cellwire.PowerStop))
	}
	report := cellwire.Report{Kind: cellwire.ReportKind(words[1]), Migration: uuid, Revision: 5,
		PowerState: plugins.PowerRunning}
	if report.Kind == cellwire.ReportDeparted {
		report.PowerState, report.Offer = plugins.PowerShutdown, "offer"
	}
	for word, power := range map[string]plugins.PowerState{"off": plugins.PowerShutdown,
		"missing": plugins.PowerNoState, "paused": plugins.PowerPaused, "broken": 99} {
		if has(word) {
			report.PowerState = power
		}
	}
	switch {
	case has("fault"):
		report.Fault = &cellwire.Fault{Message: "reported", Details: "why"}
	case has("long"):
		report.Offer = strings.Repeat("x", cellwire.MaxOffer+1)
	case has("longest"):
		report.Offer = strings.Repeat("x", cellwire.MaxOffer)
	case has("binary"):
		report.Offer = "\x00"
	}
	about := serverstate.AboutMigration(report.Kind)
	switch { // as the cell does
	case !r.MayReport(words[0], about):
		return false, "not on this host"
	case about:
		return r.ApplyMigration(words[0], report, now)
	}
	return r.Apply(report, now)
}
