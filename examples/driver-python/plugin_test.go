// SPDX-License-Identifier: Apache-2.0

// Package driverpython_test starts the Python driver as the agent does.
package driverpython_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	python   = "/usr/bin/python3"
	packages = "python3-grpcio, python3-protobuf, python3-cryptography, protobuf-compiler"
	rootUUID = "11111111-2222-3333-4444-555555555555"
	guest    = "99999999-2222-3333-4444-555555555555"
	patience = testproc.Patience
)

// builtDriver is the built driver, for all tests; "" if packages are missing, and why.
var builtDriver, missing string

func TestMain(m *testing.M) {
	if runtime := os.Getenv(agentKey); runtime != "" {
		if err := agentMain(runtime, os.Getenv(agentKey+"_DRIVER")); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(func() int {
		if out, err := exec.Command(python, "-c",
			"import grpc, google.protobuf, cryptography; import shutil; assert shutil.which('protoc'), 'no protoc'").
			CombinedOutput(); err != nil {
			missing = fmt.Sprintf("one of Debian's packages %s is not installed (tools/packages.sh test): %v: %s",
				packages, err, out)
			return m.Run()
		}
		dir, err := os.MkdirTemp("", "driver")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		builtDriver = filepath.Join(dir, launch.Prefix+"python")
		if out, err := exec.Command(python, "build.py", builtDriver).CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "building the driver: %v: %s\n", err, out)
			return 1
		}
		return m.Run()
	}())
}

// need ends a test without the packages.
func need(t *testing.T) {
	t.Helper()
	if missing != "" {
		testproc.NotRun(t, missing)
	}
}

// rig is a plugin host with the Python driver.
type rig struct {
	*pluginhost.Plugin
	t       *testing.T
	spec    pluginhost.Spec
	log     *testproc.Buffer
	changed chan string
}

func spec(config string) pluginhost.Spec {
	return pluginhost.Spec{
		Name: "python", Config: []byte(config), HostInfo: plugins.HostInfo{Name: "cn1"},
		Restart: pluginhost.Restart{HealthInterval: 50 * time.Millisecond, BackoffBase: time.Millisecond,
			BackoffMax: time.Millisecond, FailureLimit: 1000},
	}
}

func start(t *testing.T, config string) *rig {
	t.Helper()
	return startSpec(t, func(s *pluginhost.Spec) { s.Config = []byte(config) })
}

// startSpec starts the driver with a changed spec.
func startSpec(t *testing.T, change func(*pluginhost.Spec)) *rig {
	t.Helper()
	need(t)
	runtime, err := os.MkdirTemp("/tmp", "rt") // short, for sockets
	testproc.Check(t, err)
	r := &rig{t: t, log: &testproc.Buffer{}, changed: make(chan string, 1000)}
	h, err := pluginhost.New(pluginhost.Options{
		Dir: filepath.Dir(builtDriver), RuntimeDir: runtime, Logger: zerolog.New(r.log).Level(zerolog.DebugLevel),
		Environ: []string{"PATH=" + os.Getenv("PATH"), "SECRET=x", "PYTHONPATH=/nowhere"},
	})
	testproc.Check(t, err)
	t.Cleanup(func() {
		testproc.NoError(t, h.Close())
		if left, _ := filepath.Glob(filepath.Join(runtime, "*")); len(left) > 0 {
			t.Errorf("left in the runtime directory: %v", left)
		}
		_ = os.RemoveAll(runtime)
		if t.Failed() {
			t.Logf("log:\n%s", r.log)
		}
	})
	r.spec = spec(`{}`)
	r.spec.Changed = func(node string) { r.changed <- node }
	change(&r.spec)
	if r.Plugin, err = h.Plugin(r.spec); err != nil {
		t.Fatal(err)
	}
	if err := r.Start(r.ctx()); err != nil {
		t.Fatalf("%v\nlog:\n%s", err, r.log)
	}
	return r
}

func (r *rig) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *rig) update(
	tree *providertree.Tree, allocations providertree.Allocations,
) (*providertree.Tree, providertree.Allocations, error) {
	return r.UpdateProviderTree(r.ctx(), tree, "cn1", allocations)
}

func node(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, errors.Join(tree.AddRoot(rootUUID, "cn1"), tree.SetGeneration(rootUUID, 7)))
	return tree
}

func TestItReportsTheMachine(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{"gpus":{"pci_0000_84_00_0":4},"traits":["CUSTOM_PYTHON"]}`)
	if s := r.Status(); s.State != pluginhost.Healthy || s.Version != "2.0.0" || !strings.HasPrefix(s.SDK, "python ") {
		t.Errorf("status: %+v", s)
	}
	nodes, err := r.AvailableNodes(r.ctx())
	if diff := cmp.Diff([]plugins.Node{{Name: "cn1"}}, nodes); err != nil || diff != "" {
		t.Error(err, diff)
	}
	before := node(t)
	if err := before.AddChild(rootUUID, guest, "cn1:bandwidth"); err != nil { // of another agent
		t.Fatal(err)
	}
	testproc.Try(before.AddTraits(guest, "CUSTOM_THEIRS")).Or(t)
	tree, allocations, err := r.update(before, nil)
	if err != nil || allocations != nil {
		t.Fatal(allocations, err)
	}
	root, _ := tree.Provider(rootUUID)
	for _, class := range []string{"VCPU", "MEMORY_MB"} {
		if root.Inventories[class].Total < 1 {
			t.Errorf("inventory of %s: %+v", class, root.Inventories[class])
		}
	}
	if !root.HasTrait("CUSTOM_PYTHON") || root.Generation != 7 {
		t.Errorf("root: %+v", root)
	}
	wantChild := testproc.Try(providertree.ChildUUID(rootUUID, "cn1_pci_0000_84_00_0")).Or(t)
	if inv, _ := tree.Inventory(wantChild, "VGPU"); inv.Total != 4 {
		t.Errorf("VGPU of %s: %+v: the uuid of a child follows from its name as it does in Go", wantChild, inv)
	}
	if p, _ := tree.Provider(guest); !p.HasTrait("CUSTOM_THEIRS") {
		t.Errorf("what another agent wrote did not pass through: %+v", p)
	}
	again, _, err := r.update(tree, nil)
	if err != nil || !again.Equal(tree) {
		t.Errorf("the second pass changes something: %v\n%v\n%v", err, tree, again)
	}
}

func TestItReshapes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{"gpus":{"a":4,"b":4}}`)
	before := node(t)
	testproc.Try(before.SetInventory(rootUUID, "VGPU", providertree.Inventory{Total: 8})).Or(t)
	_, _, err := r.update(before, nil)
	var needed *plugins.ReshapeNeeded
	if !errors.As(err, &needed) || !strings.Contains(needed.Reason, "VGPU moves") {
		t.Fatalf("without allocations: %v", err)
	}
	generation := int64(3)
	given := providertree.Allocations{guest: {
		Resources:  providertree.ProviderResources{rootUUID: {"VGPU": 3, "VCPU": 1}},
		Generation: &generation, ProjectID: "p", UserID: "u", ConsumerType: "INSTANCE",
	}}
	tree, moved, err := r.update(before, given)
	testproc.Check(t, err)
	child, _ := tree.ProviderByName("cn1_a")
	want := given.Clone()
	want[guest].Resources[rootUUID] = map[string]int64{"VCPU": 1}
	want[guest].Resources[child.UUID] = map[string]int64{"VGPU": 3}
	testproc.Same(t, cmp.Diff(want, moved))

	given[guest].Resources[rootUUID]["VGPU"] = 9
	_, _, err = r.update(before, given)
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) || len(failed.Violations) != 1 || failed.Violations[0].Consumer != guest {
		t.Errorf("more than there is capacity for: %#v", err)
	}
	for i := range 600 { // a long answer travels in a header
		consumer := testproc.Try(providertree.ChildUUID(rootUUID, strconv.Itoa(i))).Or(t)
		given[consumer] =
			providertree.ConsumerAllocations{Resources: providertree.ProviderResources{rootUUID: {"VGPU": 9}}}
	}
	if _, _, err = r.update(before, given); !errors.As(err, &failed) || len(failed.Violations) != 501 {
		t.Errorf("601 violations: %#v", err)
	}
}

func TestMistakesInTheConfigurationAreNamed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{}`)
	var wrong *plugins.ConfigError
	if err := r.Reconfigure(r.ctx(), spec(`{"gpu":{}}`)); !errors.As(err, &wrong) || wrong.Key != "gpu" {
		t.Errorf("unknown key: %v", err)
	}
	if s := r.Status(); s.State != pluginhost.Healthy || s.Restarts != 0 {
		t.Errorf("status: %+v", s)
	}
	testproc.Check(t, r.Reconfigure(r.ctx(), spec(`{"disk":"/no/such/disk"}`)))
	if _, _, err := r.update(node(t), nil); !errors.Is(err, plugins.ErrNotReady) {
		t.Errorf("a disk that is not there: %v", err)
	}
}

// TestItTakesLargeMessages: the protocol's limit is 16 MiB, gRPC's own 4 MiB.
func TestItTakesLargeMessages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{}`)
	tree := node(t)
	for i := range 10_000 {
		name := "cn1_device_" + strconv.Itoa(i)
		uuid := testproc.Try(providertree.ChildUUID(guest, name)).Or(t)
		_, setErr := tree.AddTraits(rootUUID, "CUSTOM_A")
		testproc.Check(t, errors.Join(tree.AddChild(rootUUID, uuid, name), setErr))
		testproc.Try(tree.SetInventory(uuid, "CUSTOM_DEVICE", providertree.Inventory{Total: int64(i) + 1})).Or(t)
	}
	given := providertree.Allocations{}
	for i := range 10_000 {
		consumer := testproc.Try(providertree.ChildUUID(rootUUID, strconv.Itoa(i))).Or(t)
		given[consumer] =
			providertree.ConsumerAllocations{Resources: providertree.ProviderResources{rootUUID: {"VCPU": 1,
				"MEMORY_MB": 512}}}
	}
	after, back, err := r.update(tree, given)
	testproc.Check(t, err)
	if diff := cmp.Diff(given, back); diff != "" || after.Len() != tree.Len() {
		t.Errorf("%d providers came back of %d; %s", after.Len(), tree.Len(), diff)
	}
}

func TestItTellsOfChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{"look_every":0.05}`)
	r.await("the start", func() bool { return len(r.changed) > 0 }) // every new process is a change
	<-r.changed
	r.await("the first look", func() bool { return strings.Contains(r.log.String(), "watching the machine") })
	testproc.Check(t, r.Reconfigure(r.ctx(), r.specThatTells(`{"look_every":0.05,"gpus":{"a":1}}`)))
	// The host tells of the configuration itself; the driver, that its trees look different now.
	r.await("both", func() bool { return len(r.changed) >= 2 })
}

func (r *rig) specThatTells(config string) pluginhost.Spec {
	s := spec(config)
	s.Changed = func(node string) { r.changed <- node }
	return s
}

func TestItComesBackAfterAKill(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{}`)
	first := r.Status().PID
	testproc.Check(t, syscall.Kill(first, syscall.SIGKILL))
	r.awaitRestart(first)
	if _, _, err := r.update(node(t), nil); err != nil {
		t.Error(err)
	}
}

// TestItEndsInOrder: an orderly stop logs no warning, and what the driver logs arrives with its
// level and fields.
func TestItEndsInOrder(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{}`)
	if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", r.Status().PID)); err != nil ||
		strings.TrimSpace(string(comm)) != "driver-python" {
		t.Errorf("name of the process: %q %v", comm, err)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", r.Status().PID))
	if err != nil || bytes.Contains(environ, []byte("SECRET")) || bytes.Contains(environ, []byte("PYTHONPATH")) {
		t.Errorf("environment: %v %q", err, environ)
	}
	testproc.NoError(t, r.Stop(r.ctx()))
	configured := false
	for line := range strings.Lines(r.log.String()) {
		var record struct{ Level, Message, Call, Output string }
		testproc.Check(t, json.Unmarshal([]byte(line), &record))
		configured = configured ||
			(record.Message == "configured" && record.Level == "debug" && record.Call == "Configure")
		if record.Level == "warn" || record.Level == "error" || record.Output == "raw" {
			t.Errorf("log: %s", line)
		}
	}
	if !configured {
		t.Error("what the driver logs does not arrive with its level and fields")
	}
}

// TestBuildIsReproducible: the same sources give the same digest, so that drivers.python.sha256 can
// be computed beforehand.
func TestBuildIsReproducible(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t)
	second := filepath.Join(t.TempDir(), "driver")
	if out, err := exec.Command(python, "build.py", second).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	a, errA := os.ReadFile(builtDriver)
	b, errB := os.ReadFile(second)
	if errA != nil || errB != nil || !bytes.Equal(a, b) {
		t.Error("two builds differ", errA, errB)
	}
}

// TestOwnTests runs those of the Python code.
func TestOwnTests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t)
	stage := t.TempDir()
	if out, err := exec.Command(python, "build.py", "--stage", stage).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(python, "-B", "-m", "unittest", "discover", "-s", "tests")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+stage)
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("\nOK")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func (r *rig) await(what string, happened func() bool) {
	r.t.Helper()
	testproc.Eventually(r.t, patience, what, testproc.True(happened))
}

func (r *rig) awaitRestart(former int) {
	r.t.Helper()
	r.await("the restart", func() bool {
		s := r.Status()
		return s.State == pluginhost.Healthy &&
			s.PID != 0 && s.PID != former
	})
}
