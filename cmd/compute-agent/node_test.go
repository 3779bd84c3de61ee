// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	secondNode    = "aaaaaaaa-0000-4000-8000-000000000002"
	alice         = "99999999-0000-4000-8000-000000000001"
	traitDisabled = "COMPUTE_STATUS_DISABLED"
)

// host writes a configuration whose nodes the fake driver has; without a uuid a node is the host's
// own.
func (s *site) host(name, nodes string) {
	s.t.Helper()
	s.configure("flat", "")
	path := filepath.Join(s.dir, "agent.toml")
	content := testproc.Try(os.ReadFile(path)).Or(s.t)
	head, _, _ := strings.Cut(string(content), "[drivers")
	head = strings.Replace(head, `host = "cn1"`, `host = "`+name+`"`, 1)
	check(s.t, os.WriteFile(path, []byte(head+"[drivers.fake.config]\nnodes = ["+nodes+"]\n"), 0o600))
}

// own is the host's own node, with a child, as a driver names it that gives no uuid.
func own(name string) string {
	return `{name = "` + name +
		`", inventories = {VCPU = {total = 8}}, children = [{name = "gpu0", inventories = {CUSTOM_GPU = {total = 4}}}]}`
}

func (s *site) state(file string) string { return filepath.Join(s.dir, "state", file) }

func (s *site) identity() string {
	s.t.Helper()
	content := testproc.Try(os.ReadFile(s.state("compute_id"))).Or(s.t)
	return strings.TrimSpace(string(content))
}

// names are those of all providers in Placement, sorted.
func (s *site) names() []string {
	s.t.Helper()
	var out struct {
		Providers []struct{ Name string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers", "", &out)
	names := []string{}
	for _, p := range out.Providers {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return names
}

func (s *site) hasNames(want ...string) {
	s.t.Helper()
	testproc.EqualList(s.t, s.names(), want, "Placement has %q")
}

func (s *site) traits(uuid string) []string {
	s.t.Helper()
	var out struct{ Traits []string }
	s.request(http.MethodGet, "/resource_providers/"+uuid+"/traits", "", &out)
	return out.Traits
}

// says runs a command and wants an exit code, and all parts in the output.
func (s *site) says(code int, args []string, parts ...string) string {
	s.t.Helper()
	got, stdout, stderr := s.run(args...)
	for _, part := range parts {
		if !strings.Contains(stdout+stderr, part) {
			s.t.Errorf("%q does not say %q", args, part)
			code = -1
		}
	}
	if got != code {
		s.t.Errorf("%q ended with %d:\n%s%s", args, got, stdout, stderr)
	}
	return stdout
}

// refusesToStart wants the agent to end with exit code 3 and all parts said, and nothing written.
func (s *site) refusesToStart(parts ...string) {
	s.t.Helper()
	s.mu.Lock()
	before := s.writes
	s.mu.Unlock()
	s.says(cli.ExitProtect, []string{"run"}, parts...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes != before {
		s.t.Errorf("an agent that refuses to start made %d writes", s.writes-before)
	}
}

// holds wants the agent to run and to hold its node, status to say all parts, and nothing written.
func (s *site) holds(parts ...string) {
	s.t.Helper()
	s.mu.Lock()
	before := s.writes
	s.mu.Unlock()
	stop := s.agentUntil("a node that is held", func(view health.Status) bool {
		return len(view.Drivers) > 0 && slices.ContainsFunc(view.Drivers[0].Report.Nodes,
			func(n resourcetracker.NodeStatus) bool { return n.Held })
	})
	s.says(cli.ExitFailed, []string{"status"}, append(parts, "degraded, held")...)
	stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writes != before {
		s.t.Errorf("an agent that holds its node made %d writes", s.writes-before)
	}
}

// wipe leaves the state directory without files, as a reinstallation does.
func (s *site) wipe() {
	s.t.Helper()
	check(s.t, os.RemoveAll(filepath.Join(s.dir, "state")))
}

// TestReinstalledHost: the name is there under the former uuid, and is taken over with it.
func TestReinstalledHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	was := s.identity()
	s.request(http.MethodPut, "/allocations/"+alice, `{"allocations": {"`+was+
		`": {"resources": {"VCPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, nil)
	s.wipe()
	s.holds("cn1", was, "compute-agent adopt --node cn1 --uuid "+was)
	fresh := s.identity()

	s.says(cli.ExitUsage, []string{"adopt"}, "give --uuid UUID, --rename, --as-new or --give-back")
	s.says(cli.ExitUsage, []string{"adopt", "--uuid", "cn1"}, "is not a uuid")
	s.says(cli.ExitUsage, []string{"adopt", "--uuid", was}, "standard input is not a terminal")
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", secondNode, "--dry-run"},
		"has no resource provider "+secondNode,
		"adopt --node cn1 --uuid "+was)
	s.says(cli.ExitDone, []string{"adopt", "--uuid", was, "--dry-run"}, "cn1_gpu0",
		"CUSTOM_GPU 4", "Steps:", "it was "+fresh)
	if s.identity() != fresh {
		t.Error("the dry run wrote")
	}
	s.says(cli.ExitDone, []string{"adopt", "--uuid", was, "--yes"}, "Done:")
	testproc.Equal(t, s.identity(), was, "compute_id is %s")
	if kept, _ := filepath.Glob(s.state("compute_id.replaced-*")); len(kept) != 1 {
		t.Errorf("kept: %v", kept)
	}
	s.says(cli.ExitDone, []string{"adopt", "--uuid", was, "--yes"}, "Nothing to do for node")
	before := s.writes
	s.agent()()
	s.hasNames("cn1", "cn1_gpu0")
	if s.writes != before {
		t.Errorf("%d writes after the host was adopted", s.writes-before)
	}
}

// TestLostIdentity: compute_id is gone, and the state directory knows what it was.
func TestLostIdentity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	was := s.identity()
	check(t, os.Remove(s.state("compute_id")))
	s.refusesToStart("identity is missing", was, "adopt --uuid "+was)
	s.says(cli.ExitDone, []string{"adopt", "--uuid", was, "--yes"}, "it holds none")
	s.agent()()

	check(t, os.WriteFile(s.state("compute_id"), []byte(secondNode+"\n"), 0o600))
	s.refusesToStart("the file was replaced", secondNode, was)
}

// TestRenamedHost: the provider and those named after it follow, others do not, and a renaming that
// broke off is gone on with.
func TestRenamedHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	root := s.identity()
	s.request(http.MethodPost, "/resource_providers",
		`{"name": "cn1:NIC agent", "uuid": "`+secondNode+`", "parent_provider_uuid": "`+root+`"}`, nil)
	s.host("cn9", own("cn9"))
	s.refusesToStart("host cn1", "is named cn9 now", "adopt --rename")
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", root, "--yes"}, "another name than this node", "--rename")
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--dry-run"}, "cn1 → cn9", "cn1_gpu0 → cn9_gpu0")
	s.hasNames("cn1", "cn1:NIC agent", "cn1_gpu0")

	// Names are taken in all of Placement, also by those that differ in spaces at the end, and this
	// is found out before anything is renamed.
	s.request(http.MethodPost, "/resource_providers",
		`{"name": "cn9_gpu0 ", "uuid": "aaaaaaaa-0000-4000-8000-000000000009"}`, nil)
	s.says(cli.ExitProtect, []string{"adopt", "--rename", "--yes"}, "cannot be renamed",
		"aaaaaaaa-0000-4000-8000-000000000009 has the name cn9_gpu0")
	s.request(http.MethodDelete, "/resource_providers/aaaaaaaa-0000-4000-8000-000000000009", "", nil)
	s.says(cli.ExitProtect, []string{"adopt", "--rename", "--node", "cn1_b", "--yes"},
		"begins with the old one and an underscore")
	s.hasNames("cn1", "cn1:NIC agent", "cn1_gpu0")

	// A crash after the first provider.
	check(t, os.WriteFile(s.state("identity.json"), []byte(strings.Replace(read(t, s.state("identity.json")), `"nodes"`,
		`"renaming": {"root": "`+root+`", "from": "cn1", "to": "cn9", "begun": "2026-01-02T03:04:05Z"}, "nodes"`, 1)),
		0o600))
	s.request(http.MethodPut, "/resource_providers/"+root, `{"name": "cn9"}`, nil)
	s.refusesToStart("is not finished", "adopt --rename --node cn9 --uuid "+root)
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--yes"}, "Done:", "rename resource provider cn1_gpu0")
	s.hasNames("cn1:NIC agent", "cn9", "cn9_gpu0")
	before := s.writes
	s.agent()()
	s.hasNames("cn1:NIC agent", "cn9", "cn9_gpu0")
	if s.writes != before {
		t.Errorf("%d writes after the host was renamed", s.writes-before)
	}
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--yes"}, "Nothing to do for node")

	s.request(http.MethodPut, "/resource_providers/"+root, `{"name": "cn9 "}`, nil)
	s.says(cli.ExitDone, []string{"adopt", "--rename", "--yes"}, "Done:")
	s.hasNames("cn1:NIC agent", "cn9", "cn9_gpu0")
}

func read(t *testing.T, path string) string {
	t.Helper()
	content := testproc.Try(os.ReadFile(path)).Or(t)
	return string(content)
}

// TestCopiedStateDirectory: another machine's state directory is not this host's.
func TestCopiedStateDirectory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	var record map[string]any
	check(t, json.Unmarshal([]byte(read(t, s.state("identity.json"))), &record))
	known := record["machine_id"] != nil
	record["machine_id"] = strings.Repeat("f", 32)
	content := testproc.Try(json.Marshal(record)).Or(t)
	check(t, os.WriteFile(s.state("identity.json"), content, 0o600))
	s.host("cn9", own("cn9"))
	s.refusesToStart("host cn1", "this is cn9")
	for _, command := range []string{"audit", "heal"} {
		s.says(cli.ExitProtect, []string{"allocations", command}, "host cn1", "this is cn9")
	}
	// Under the same name it may be the host on new hardware; nothing is healed before an agent has
	// run here.
	if s.host("cn1", own("cn1")); known {
		s.says(cli.ExitProtect, []string{"allocations", "heal"}, "changed since the last start")
	}
}

// TestLostPlacement: a Placement that has forgotten this host is not filled again without an
// operator's decision.
func TestLostPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.agent()()
	root := s.identity()
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers", "", &list)
	for _, p := range list.Providers {
		if p.UUID != root {
			s.request(http.MethodDelete, "/resource_providers/"+p.UUID, "", nil)
		}
	}
	s.request(http.MethodDelete, "/resource_providers/"+root, "", nil)
	s.holds("does not have node cn1", "lost its database", "adopt --as-new --node cn1")
	s.hasNames()
	s.says(cli.ExitUsage, []string{"adopt", "--as-new", "--uuid", root}, "cannot be combined")
	s.says(cli.ExitDone, []string{"adopt", "--as-new", "--yes"}, "let node cn1 be created again")
	s.agent()()
	s.hasNames("cn1", "cn1_gpu0")
	s.says(cli.ExitDone, []string{"adopt", "--as-new", "--yes"}, "Nothing to do for node")
}

// TestAdoptRefuses: what is no compute node of this host is not taken over, and not while the agent
// runs.
func TestAdoptRefuses(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	stop := s.agent()
	root := s.identity()
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", root, "--yes"}, "the agent runs", "stop it first")
	stop()
	s.request(http.MethodPost, "/resource_providers", `{"name": "nfs", "uuid": "`+secondNode+`"}`, nil)
	s.request(http.MethodPut, "/resource_providers/"+
		secondNode+"/traits", `{"traits": ["MISC_SHARES_VIA_AGGREGATE"], "resource_provider_generation": 0}`, nil)
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", secondNode, "--node", "nfs", "--yes"}, "is a sharing provider")
	var list struct {
		Providers []struct{ UUID, Name string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers?name=cn1_gpu0", "", &list)
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", list.Providers[0].UUID, "--node", "cn1_gpu0", "--yes"},
		"is a child of "+root)
	s.request(http.MethodPost, "/resource_providers",
		`{"name": "cn7", "uuid": "aaaaaaaa-0000-4000-8000-000000000007"}`, nil)
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", "aaaaaaaa-0000-4000-8000-000000000007", "--node", "cn7",
		"--yes"},
		"two resource providers claim to be this host")
	s.says(cli.ExitProtect, []string{"adopt", "--uuid", root, "--node", "cn7", "--rename", "--yes"},
		"two resource providers claim to be this host")
	testproc.Equal(t, s.identity(), root, "compute_id is %s")
}

// TestDisableAndEnable: a reason outlives the agent, reaches Placement at once where one runs, and
// enabling takes away what others set.
func TestDisableAndEnable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	s.says(cli.ExitUsage, []string{"disable"}, "--reason")
	s.says(cli.ExitUsage, []string{"disable", "--reason", "a\nb"}, "control character")
	s.says(cli.ExitUsage, []string{"disable", "--reason", strings.Repeat("x", 501)}, "at most 500 are allowed")
	s.says(cli.ExitDone, []string{"disable", "--reason", "new memory"}, "No agent runs")
	stop := s.agent()
	root := s.identity()
	if !slices.Contains(s.traits(root), traitDisabled) {
		t.Errorf("traits: %v", s.traits(root))
	}
	s.says(cli.ExitDone, []string{"status"}, "disabled", "new memory")
	s.says(cli.ExitFailed, []string{"enable", "--node", "cn1"}, "all nodes of this host are disabled together")
	s.says(cli.ExitFailed, []string{"disable", "--node", "cn7", "--reason", "x"}, "no driver reports a node")
	s.says(cli.ExitDone, []string{"enable"}, "enabled; Placement is up to date")
	if slices.Contains(s.traits(root), traitDisabled) {
		t.Errorf("traits: %v", s.traits(root))
	}
	s.says(cli.ExitDone, []string{"disable", "--node", "cn1", "--reason", "fan is broken", "-o", "json"},
		`"in_placement": true`, "fan is broken")
	stop()
	s.agent()()
	if !slices.Contains(s.traits(root), traitDisabled) {
		t.Errorf("it did not outlive the agent: %v", s.traits(root))
	}
	s.says(cli.ExitDone, []string{"enable"}, "No agent runs")

	// Another client sets it, and enabling removes that, too.
	stop = s.agent()
	defer stop()
	s.eventually("the trait is gone", func() bool { return !slices.Contains(s.traits(root), traitDisabled) })
	var now struct {
		Generation int64 `json:"resource_provider_generation"`
		Traits     []string
	}
	s.request(http.MethodGet, "/resource_providers/"+root+"/traits", "", &now)
	body, err := json.Marshal(map[string]any{"traits": append(now.Traits, traitDisabled),
		"resource_provider_generation": now.Generation})
	check(t, err)
	s.request(http.MethodPut, "/resource_providers/"+root+"/traits", string(body), nil)
	stop()
	stop = s.agent()
	defer stop()
	if !slices.Contains(s.traits(root), traitDisabled) {
		t.Errorf("an administrator's trait is gone: %v", s.traits(root))
	}
	s.says(cli.ExitDone, []string{"enable"}, "enabled; Placement is up to date")
	if slices.Contains(s.traits(root), traitDisabled) {
		t.Errorf("traits: %v", s.traits(root))
	}
}

// reports runs the agent until all providers are there: each node has a pass of its own, which is
// finished when the agent stops.
func (s *site) reports(names ...string) {
	s.t.Helper()
	stop := s.agent()
	defer stop()
	s.eventually("every provider", func() bool { return slices.Equal(s.names(), names) })
}

// TestNodesThatWentAway: a node that no driver names stays until an operator says that it is gone,
// and nothing prevents its removal.
func TestNodesThatWentAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	two := func() string {
		return own("cn1") + `, {name = "cn2", uuid = "` +
			secondNode +
			`", inventories = {VCPU = {total = 4}}, children = [{name = "gpu0", inventories = {CUSTOM_GPU = ` +
			`{total = 2}}}]}`
	}
	s.host("cn1", two())
	s.reports("cn1", "cn1_gpu0", "cn2", "cn2_gpu0")
	s.says(cli.ExitDone, []string{"node", "list"}, "cn1", "cn2", "unknown")
	s.host("cn1", own("cn1"))
	stop := s.agent()
	s.hasNames("cn1", "cn1_gpu0", "cn2", "cn2_gpu0")
	s.says(cli.ExitDone, []string{"node", "list"}, "orphaned", "reporting")
	s.says(cli.ExitProtect, []string{"node", "remove", "cn1", "--yes"}, "driver fake reports this node")
	s.says(cli.ExitFailed, []string{"node", "remove", "cn7", "--yes"}, "never reported a node")
	s.request(http.MethodPut, "/allocations/"+alice, `{"allocations": {"`+secondNode+
		`": {"resources": {"VCPU": 2}}}, "project_id": "p", "user_id": "u", "consumer_generation": null}`, nil)
	s.request(http.MethodPost, "/resource_providers", `{"name": "nic", "parent_provider_uuid": "`+secondNode+`"}`, nil)
	s.says(cli.ExitProtect, []string{"node", "remove", "cn2", "--yes"}, "consumer "+alice, "it holds 2 VCPU", "nic",
		"was not created by this agent", "nothing was written")
	s.hasNames("cn1", "cn1_gpu0", "cn2", "cn2_gpu0", "nic")

	s.request(http.MethodDelete, "/allocations/"+alice, "", nil)
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	s.request(http.MethodGet, "/resource_providers?name=nic", "", &list)
	s.request(http.MethodDelete, "/resource_providers/"+list.Providers[0].UUID, "", nil)
	s.says(cli.ExitDone, []string{"node", "remove", strings.ToUpper(secondNode), "--dry-run"}, "can be removed",
		"1. delete resource provider cn2_gpu0", "2. delete resource provider cn2")
	s.hasNames("cn1", "cn1_gpu0", "cn2", "cn2_gpu0")
	s.says(cli.ExitDone, []string{"node", "remove", "cn2", "--yes"}, "Removed node")
	s.hasNames("cn1", "cn1_gpu0")
	if out := s.says(cli.ExitDone, []string{"node", "list", "-o", "json"}, `"cn1"`); strings.Contains(out, secondNode) {
		t.Errorf("it is still listed:\n%s", out)
	}
	stop()

	// The same without an agent.
	s.host("cn1", two())
	s.reports("cn1", "cn1_gpu0", "cn2", "cn2_gpu0")
	s.says(cli.ExitDone, []string{"node", "remove", "cn2", "--yes"}, "Removed node")
	s.hasNames("cn1", "cn1_gpu0")
	var nodes statedir.Nodes
	check(t, json.Unmarshal([]byte(s.says(cli.ExitDone, []string{"node", "list", "-o", "json"})), &nodes))
	if len(nodes.Nodes) != 1 || nodes.Nodes[0].Name != "cn1" ||
		nodes.Nodes[0].Since.IsZero() || !nodes.Nodes[0].Created {
		t.Errorf("%+v", nodes)
	}
}

// forgets runs an agent that has the condition node-reported-elsewhere for node cn2, and removes
// that node: nothing is deleted in Placement.
func (s *site) forgets(condition, says string) {
	s.t.Helper()
	stop := s.agent()
	s.eventually("the condition", func() bool {
		_, out, _ := s.run("status", "-o", "json")
		return strings.Contains(out, `"node-reported-elsewhere"`) && strings.Contains(out, condition)
	})
	s.says(cli.ExitDone, []string{"node", "remove", "cn2", "--yes"}, "This agent has forgotten node cn2", says)
	s.hasNames("cn1", "cn1_gpu0", "cn2")
	if out := s.says(cli.ExitDone, []string{"node", "list"}, "cn1"); strings.Contains(out, secondNode) {
		s.t.Errorf("it is still listed:\n%s", out)
	}
	stop()
}

// TestANodeThatMovedToAnotherHost: the cell says that another host reports the node that this agent
// reported before. `node remove` deletes nothing of it in Placement, and forgets it; while the cell
// cannot be asked, nothing is removed; and without a cell there is a warning.
func TestANodeThatMovedToAnotherHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1")+`, {name = "cn2", uuid = "`+secondNode+`", inventories = {VCPU = {total = 4}}}`)
	s.reports("cn1", "cn1_gpu0", "cn2")
	s.host("cn1", own("cn1"))
	remove := func(args ...string) []string { return append([]string{"node", "remove", "cn2"}, args...) }
	s.says(cli.ExitDone, remove("--dry-run"), "can be removed",
		"No cell says whether another host reports the node now.")

	store := testproc.Try(celldb.Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"), "cell1", celldb.Options{})).
		Or(t)
	defer func() { check(t, store.Close()) }()
	served := httptest.NewServer(
		testproc.Try(cell.New(cell.Config{Name: "cell1", Store: store, Auth: cell.NoAuth(), Logger: zerolog.Nop()})).
			Or(t))
	defer served.Close()
	path := filepath.Join(s.dir, "agent.toml")
	content := testproc.Try(os.ReadFile(path)).Or(t)
	check(t, os.WriteFile(path, append(content, "\n[cell_client]\nurl = \""+served.URL+"\"\n"...), 0o600))
	if out := s.says(cli.ExitDone, remove("--dry-run"), "can be removed"); strings.Contains(out, "No cell says") {
		t.Errorf("the cell was asked:\n%s", out)
	}
	moment := celldb.Moment{Now: time.Now(), DownTime: time.Minute}
	report := cellwire.HostReport{Version: "1", Nodes: []cellwire.ReportedNode{{UUID: secondNode, Name: "cn2"}}}
	_, _, err := store.Report(t.Context(), serverstate.Reporter{Host: "h2"}, report, moment)
	check(t, err)
	s.says(cli.ExitDone, remove("--dry-run"), "Host h2 reports node cn2 ("+secondNode+") now", "stay in Placement")

	s.forgets("host h2 reports it now", "Host h2 reports it")
}

// TestANodeThatTheCertificateDoesNotName: to a host whose certificate is for other nodes, the cell
// does not say who reports one. `node remove` deletes nothing of it in Placement, and forgets it.
func TestANodeThatTheCertificateDoesNotName(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1")+`, {name = "cn2", uuid = "`+secondNode+`", inventories = {VCPU = {total = 4}}}`)
	s.reports("cn1", "cn1_gpu0", "cn2")
	s.host("cn1", own("cn1"))

	store := testproc.Try(celldb.Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"), "cell1", celldb.Options{})).
		Or(t)
	defer func() { check(t, store.Close()) }()
	service := testproc.Try(
		cell.New(cell.Config{Name: "cell1", Store: store,
			Auth: cell.MutualTLS([]string{"api"}), Logger: zerolog.Nop()})).Or(t)
	now := time.Now()
	id := pki.Identity{Kind: pki.Host, Name: "cn1", Names: []string{"cn1"}, Nodes: []string{alice}, Cell: "cell1"}
	shown := &x509.Certificate{
		Subject: pkix.Name{CommonName: "cn1"}, DNSNames: id.Names, URIs: id.URIs(), NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour),
	}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{shown},
			VerifiedChains: [][]*x509.Certificate{{shown}}}
		service.ServeHTTP(w, r)
	}))
	defer served.Close()
	path := filepath.Join(s.dir, "agent.toml")
	content := testproc.Try(os.ReadFile(path)).Or(t)
	check(t, os.WriteFile(path, append(content, "\n[cell_client]\nurl = \""+served.URL+"\"\n"...), 0o600))
	remove := []string{"node", "remove", "cn2"}
	s.says(cli.ExitDone, append(remove, "--dry-run"),
		"can forget node cn2", "its certificate is for other nodes; nothing is deleted")

	s.forgets("the certificate of this host is for other nodes", "nothing is deleted")
}

// TestNoNodeIsRemovedWithoutTheCell: while the cell cannot be asked whether another host reports a
// node, it stays.
func TestNoNodeIsRemovedWithoutTheCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1")+`, {name = "cn2", uuid = "`+secondNode+`", inventories = {VCPU = {total = 4}}}`)
	s.reports("cn1", "cn1_gpu0", "cn2")
	s.host("cn1", own("cn1"))
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	path := filepath.Join(s.dir, "agent.toml")
	content := testproc.Try(os.ReadFile(path)).Or(t)
	check(t, os.WriteFile(path, append(content, "\n[cell_client]\nurl = \""+gone.URL+"\"\n"...), 0o600))
	s.says(cli.ExitProtect, []string{"node", "remove", "cn2", "--yes"}, "was not removed",
		"the cell cannot be asked whether another host reports it")
	s.hasNames("cn1", "cn1_gpu0", "cn2")
}

// TestAnInvalidFileDoesNotHideTheAgent: it is asked how it is just then.
func TestAnInvalidFileDoesNotHideTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.host("cn1", own("cn1"))
	defer s.agent()()
	testproc.Check(t, os.WriteFile(filepath.Join(s.dir, "agent.toml"), []byte("[agnt]\n"), 0o600))
	// no agent answers there
	s.says(cli.ExitConfig, []string{"tree", "--runtime-dir", t.TempDir()}, "there is no such section")
	s.says(cli.ExitDone, []string{"status", "--runtime-dir", filepath.Join(s.dir, "run")},
		"the configuration is invalid", "reporting 1 node")
}
