// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	oneInstance   = "aaaaaaaa-0000-4000-8000-000000000001"
	otherInstance = "aaaaaaaa-0000-4000-8000-000000000002"
)

// keeping is a host with a driver that keeps instances.
type keeping struct {
	*rig
	*Plugin
	t       *testing.T
	spec    Spec
	scratch string
	told    chan [2]string
}

func keep(t *testing.T, change func(*Spec)) *keeping {
	t.Helper()
	k := &keeping{rig: newRig(t), t: t, scratch: t.TempDir(), told: make(chan [2]string, 1000)}
	k.spec = chaosSpec("instanceDriver", nil)
	k.spec.Env[scratchKey] = k.scratch
	k.spec.InstanceChanged = func(node, uuid string) {
		select {
		case k.told <- [2]string{node, uuid}:
		default: // it must not wait
		}
	}
	if change != nil {
		change(&k.spec)
	}
	k.Plugin = k.mustStart(k.spec)
	return k
}

// spawn makes an instance from an image, which says what the driver is to do.
func (k *keeping) spawn(ctx context.Context, uuid, image string) (plugins.Instance, error) {
	k.t.Helper()
	return k.Spawn(ctx, "cn1", plugins.InstanceSpec{UUID: uuid, Name: "web", Image: image}, oneNode(k.t))
}

// spawning begins to make an instance slowly; release lets all of those end.
func (k *keeping) spawning(ctx context.Context, uuid string) chan outcome {
	out := make(chan outcome, 1)
	go func() {
		is, err := k.Spawn(ctx, "cn1", plugins.InstanceSpec{UUID: uuid, Image: "slow"}, oneNode(k.t))
		out <- outcome{is, err}
	}()
	return out
}

func (k *keeping) release() {
	testproc.Check(k.t, os.WriteFile(filepath.Join(k.scratch, goFile), nil, 0o600))
}

// replace has another process take over, and returns the process id of the old one.
func (k *keeping) replace() int {
	k.t.Helper()
	old := k.Status().PID
	k.spec.Args = append(k.spec.Args, "again")
	testproc.Check(k.t, k.Reconfigure(context.Background(), k.spec))
	if k.Status().PID == old {
		k.t.Fatal("the process was not replaced")
	}
	return old
}

// awaitEvent waits for an event about an instance.
func (k *keeping) awaitEvent(node, uuid string) {
	k.t.Helper()
	limit := time.After(patience)
	for {
		select {
		case got := <-k.told:
			if got == [2]string{node, uuid} {
				return
			}
		case <-limit:
			k.t.Fatalf("waited for an event about instance %q of node %q", uuid, node)
		}
	}
}

type outcome struct {
	is  plugins.Instance
	err error
}

// TestInstanceSpecComesThroughTheWire: what the driver sees is what the agent asked for.
func TestInstanceSpecComesThroughTheWire(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k := keep(t, nil)
	text, size := rapid.StringN(0, 40, -1), rapid.Int64Range(0, providertree.MaxUnit)
	properties := rapid.MapOfN(text, text, 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		want := plugins.InstanceSpec{
			UUID: rapid.SampledFrom([]string{oneInstance, otherInstance}).Draw(rt, "uuid"), Name: text.Draw(rt, "name"),
			ProjectID: text.Draw(rt, "project"), UserID: text.Draw(rt, "user"),
			Flavor: plugins.Flavor{
				Name: text.Draw(rt, "flavor"), VCPUs: size.Draw(rt, "vcpus"), MemoryMB: size.Draw(rt, "memory"),
				RootGB:      size.Draw(rt, "root"),
				EphemeralGB: size.Draw(rt, "ephemeral"),
				SwapMB:      size.Draw(rt, "swap"), ExtraSpecs: properties.Draw(rt, "extra specs"),
			},
			Image: "echo", ImageProperties: properties.Draw(rt, "properties"),
			Metadata: properties.Draw(rt, "metadata"),
			UserData: rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(rt, "user data"), KeyName: text.Draw(rt, "key name"),
			PublicKey: text.Draw(rt, "public key"), ConfigDrive: rapid.Bool().Draw(rt, "config drive"),
			Allocations: rapid.MapOfN(rapid.Just(rootUUID), rapid.Map(rapid.MapOfN(rapid.StringMatching(`[A-Z_]{1,8}`),
				rapid.Int64Range(1, providertree.MaxUnit), 1, 3),
				func(m map[string]int64) providertree.Resources { return m }), 0, 1).Draw(rt, "allocations"),
		}
		_, err := k.Spawn(context.Background(), "cn1", want, oneNode(t))
		var fault *plugins.InstanceFault
		var got plugins.InstanceSpec
		if !errors.As(err, &fault) || fault.UUID != want.UUID {
			rt.Fatal(err)
		}
		text := testproc.Try(base64.StdEncoding.DecodeString(fault.Reason)).Or(rt)
		if err := json.Unmarshal(text, &got); err != nil {
			rt.Fatalf("%v: %s", err, text)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestInstancesAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	list, err := k.Instances(ctx, "cn1")
	want := []plugins.Instance{{UUID: "aaaaaaaa-2222-3333-4444-55555555abcd", Name: "web", Power: plugins.PowerPaused,
		HypervisorName: "instance-00000001"}}
	if diff := cmp.Diff(want, list); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for node, kind := range map[string]error{"bad": driverclient.ErrBadReply, "not-ready": plugins.ErrNotReady} {
		if list, err := k.Instances(ctx, node); list != nil || !errors.Is(err, kind) {
			t.Errorf("list %s: %v, %v", node, list, err)
		}
	}
	if is, err := k.spawn(ctx, strings.ToUpper(oneInstance), ""); err != nil || is.UUID != oneInstance ||
		is.Name != "web" || is.Power != plugins.PowerRunning {
		t.Errorf("spawn: %+v, %v", is, err)
	}
	if is, err := k.SetPower(ctx, "cn1", oneInstance, plugins.PowerShutdown, true); err != nil ||
		is != (plugins.Instance{UUID: oneInstance, Name: "hard true", Power: plugins.PowerShutdown}) {
		t.Errorf("power: %+v, %v", is, err)
	}
	testproc.NoErrorf(t, k.Destroy(ctx, "cn1", oneInstance), "destroy")
}

// TestInstanceErrorsAreTyped: the caller can tell what was refused, and when the outcome is not
// known.
func TestInstanceErrorsAreTyped(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	spawn := func(image string) error {
		t.Helper()
		is, err := k.spawn(ctx, oneInstance, image)
		if is != (plugins.Instance{}) {
			t.Errorf("%s: an instance came with the error %v", image, err)
		}
		return err
	}
	power := func(node string) error {
		_, err := k.SetPower(ctx, node, oneInstance, plugins.PowerRunning, false)
		return err
	}
	for _, c := range []struct {
		name    string
		err     error
		kind    error // nil: none
		unknown bool
		words   string
	}{
		{"fault", spawn("fault"), nil, false, "making a disk"},
		{"fault of destroy", k.Destroy(ctx, "fault", oneInstance), nil, false, "instance " + oneInstance +
			": it belongs to another tool"},
		{"not found", power("not-found"), plugins.ErrInstanceNotFound, false, "looking it up"},
		{"not found, at the making", spawn("not-found"), plugins.ErrInstanceNotFound, true, "looking at what was made"},
		{"not ready", spawn("not-ready"), plugins.ErrNotReady, false, "it sleeps"},
		{"unsupported", spawn("unsupported"), plugins.ErrUnsupported, false, "this hypervisor"},
		{"error", spawn("error"), ErrOutcomeUnknown, true, "something went wrong"},
		{"panic", spawn("panic"), ErrOutcomeUnknown, true, "panicked in Spawn"},
		{"another instance", spawn("other"), driverclient.ErrBadReply, true, "the request was for " + oneInstance},
		{"a state that cannot be", power("bad"), driverclient.ErrBadReply, true, "power state 2"},
	} {
		var call *driverclient.CallError
		if !errors.As(c.err, &call) || c.kind != nil && !errors.Is(c.err, c.kind) ||
			errors.Is(c.err, ErrOutcomeUnknown) != c.unknown || !strings.Contains(c.err.Error(), c.words) {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
	var fault *plugins.InstanceFault
	if err := spawn("fault"); !errors.As(err, &fault) ||
		*fault != (plugins.InstanceFault{UUID: oneInstance, Reason: "the disk is full"}) {
		t.Errorf("fault: %+v", fault)
	}
	var notFound *plugins.InstanceNotFound
	if err := power("not-found"); !errors.As(err, &notFound) || notFound.UUID != oneInstance {
		t.Errorf("not found: %+v", notFound)
	}
	if s := k.Status(); s.Restarts != 0 || s.State != Healthy {
		t.Errorf("none of that is a reason to restart: %+v", s)
	}
}

// TestInstanceRequestsThatCannotBe are not sent.
func TestInstanceRequestsThatCannotBe(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	spawn := func(change func(*plugins.InstanceSpec)) error {
		spec := plugins.InstanceSpec{UUID: oneInstance}
		change(&spec)
		_, err := k.Spawn(ctx, "cn1", spec, oneNode(t))
		return err
	}
	of := func(provider string, amounts map[string]int64) error {
		return spawn(func(s *plugins.InstanceSpec) {
			s.Allocations =
				providertree.ProviderResources{provider: amounts}
		})
	}
	_, list := k.Instances(ctx, "")
	_, noTree := k.Spawn(ctx, "cn1", plugins.InstanceSpec{UUID: oneInstance}, nil)
	_, noNode := k.Spawn(ctx, "", plugins.InstanceSpec{UUID: oneInstance}, oneNode(t))
	_, power := k.SetPower(ctx, "cn1", oneInstance, plugins.PowerPaused, false)
	_, far := k.SetPower(ctx, "cn1", oneInstance, 1<<32+1, false)
	many := map[string]string{}
	for i := range 1001 {
		many[strings.Repeat("k", i)] = ""
	}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"list of no node":    {list, "node"},
		"no tree":            {noTree, "no provider tree"},
		"no node":            {noNode, "node"},
		"paused":             {power, "can be brought to RUNNING (1) or SHUTDOWN (4)"},
		"no power state":     {far, "power state -1"},
		"destroy of no uuid": {k.Destroy(ctx, "cn1", "web"), `"web" is not a uuid`},
		"destroy on no node": {k.Destroy(ctx, "\xff", oneInstance), "UTF-8"},
		"no uuid":            {spawn(func(s *plugins.InstanceSpec) { s.UUID = "" }), "not a uuid"},
		"user data": {spawn(
			func(s *plugins.InstanceSpec) { s.UserData = make([]byte, protocol.MaxUserData+1) }), "65537 bytes"},
		"public key": {spawn(
			func(s *plugins.InstanceSpec) { s.PublicKey = strings.Repeat("k", protocol.MaxPublicKey+1) }),
			"public key has 16385 bytes"},
		"negative flavor": {spawn(func(s *plugins.InstanceSpec) { s.Flavor.RootGB = -1 }), "root_gb is -1"},
		"huge flavor": {spawn(func(s *plugins.InstanceSpec) { s.Flavor.MemoryMB = 1 << 31 }),
			"memory_mb is 2147483648"},
		"long name": {spawn(func(s *plugins.InstanceSpec) { s.Name = strings.Repeat("n", 1021) }),
			"name has 1021 bytes"},
		"not text": {spawn(func(s *plugins.InstanceSpec) { s.ProjectID = "\xff" }), "project id"},
		"metadata no text": {spawn(func(s *plugins.InstanceSpec) { s.Metadata = map[string]string{"a": "\xff"} }),
			"metadata"},
		"too many properties": {spawn(func(s *plugins.InstanceSpec) { s.ImageProperties = many }), "1001 entries"},
		"large extra specs": {spawn(func(s *plugins.InstanceSpec) {
			s.Flavor.ExtraSpecs = map[string]string{"hw:x": strings.Repeat("v", 1<<20)}
		}), "extra specs of the flavor: 1048580 bytes"},
		"nothing granted":     {of(rootUUID, map[string]int64{"VCPU": 0}), "must be between 1"},
		"granted without any": {of(rootUUID, nil), "listed without any"},
		"granted of no class": {of(rootUUID, map[string]int64{"vcpu": 1}), "vcpu"},
		"granted elsewhere":   {of(oneInstance, map[string]int64{"VCPU": 1}), "is not in the tree"},
		"granted of no uuid":  {of("cn1", map[string]int64{"VCPU": 1}), "not a uuid"},
		"a spec that is a list": {spawn(func(s *plugins.InstanceSpec) { s.UUID = oneInstance + "," + otherInstance }),
			"not a uuid"},
	} {
		if !errors.Is(c.err, driverclient.ErrBadRequest) || errors.Is(c.err, ErrOutcomeUnknown) ||
			!strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, c.err)
		}
	}
	k.awaitEvent("", "")
	if len(k.told) != 0 { // the driver tells of everything that reaches it
		t.Errorf("the driver was asked about %v", <-k.told)
	}
}

func TestCrashInASpawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	if _, err := k.spawn(ctx, oneInstance, "crash"); !errors.Is(err, driverclient.ErrUnavailable) ||
		!errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("got %v", err)
	}
	_, n := k.await(0, "the end", is(Backoff))
	k.await(n, "the restart", is(Healthy))
	if _, err := k.spawn(ctx, oneInstance, ""); err != nil {
		t.Errorf("the same one again: %v", err)
	}
	testproc.Check(t, k.Stop(ctx))
	if _, err := k.spawn(ctx, oneInstance, ""); !errors.Is(err, driverclient.ErrUnavailable) ||
		errors.Is(err, ErrOutcomeUnknown) {
		t.Errorf("of a plugin that is down: %v", err)
	}
	testproc.Try(k.Instances(ctx, "cn1")).ErrorIs(t, driverclient.ErrUnavailable, "list of a plugin that is down: %v")
}

// TestSpawnsWithoutAnAnswer: the deadline holds; what is not answered in a row ends the process,
// but not for the impatience of a caller.
func TestSpawnsWithoutAnAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k := keep(t, nil)
	pid := k.Status().PID
	for range 4 {
		k.eventually("a call that begins", func() error {
			_, err := k.spawn(impatient(t), oneInstance, "hang")
			if errors.As(err, new(*notBegunError)) { // the caller was too impatient
				return err
			}
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrOutcomeUnknown) {
				t.Errorf("an impatient caller: %v", err)
			}
			return nil
		})
		if _, err := k.spawn(context.Background(), otherInstance, "own-deadline"); !errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("a deadline of the driver's own: %v", err)
		}
	}
	k.spec.Timeouts.Instance = 200 * time.Millisecond // of what is answered nothing is to meet it
	testproc.Check(t, k.Reconfigure(context.Background(), k.spec))
	spawn := func() {
		if _, err := k.spawn(context.Background(), oneInstance, "hang"); !errors.Is(err, driverclient.ErrNoAnswer) ||
			!errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("got %v", err)
		}
	}
	spawn()
	if _, err := k.update(k.Plugin, nil); err != nil || k.Status().PID != pid {
		t.Errorf("after one miss: %v, %+v", err, k.Status())
	}
	spawn()
	down, _ := k.await(0, "the kill", is(Backoff))
	if !strings.Contains(down.LastError, "2 consecutive calls got no response") ||
		!strings.Contains(down.LastError, "Spawn") {
		t.Errorf("reason: %q", down.LastError)
	}
}

// TestSpawnsHoldUpNothingElse: two are in the driver at once, and passes, lists and a new
// configuration go on beside them.
func TestSpawnsHoldUpNothingElse(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	one, other := k.spawning(ctx, oneInstance), k.spawning(ctx, otherInstance)
	k.awaitLog("spawning " + oneInstance)
	k.awaitLog("spawning " + otherInstance)
	for range 3 {
		if _, err := k.AvailableNodes(ctx); err != nil {
			t.Error(err)
		}
		if _, err := k.update(k.Plugin, nil); err != nil {
			t.Error(err)
		}
		if _, err := k.Instances(ctx, "cn1"); err != nil {
			t.Error(err)
		}
	}
	pid := k.Status().PID
	if err := k.Reconfigure(ctx, k.spec); err != nil || k.Status().PID != pid {
		t.Errorf("a new configuration: %v, %+v", err, k.Status())
	}
	if err := k.Destroy(impatient(t), "cn1", oneInstance); !errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ErrOutcomeUnknown) || !strings.Contains(err.Error(), "nothing was begun") {
		t.Errorf("another call about one of them: %v", err)
	}
	k.release()
	if a, b := <-one, <-other; a.err != nil || b.err != nil {
		t.Error(a.err, b.err)
	}
	testproc.Equal(t, k.managing.locks.Len(), 0, "%d turns are still remembered")
}

// TestReplacedProcessFinishesItsSpawn: another call about the same instance waits for it, and goes
// to the new process.
func TestReplacedProcessFinishesItsSpawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	first := k.spawning(ctx, oneInstance)
	k.awaitLog("spawning " + oneInstance)
	old := k.replace()
	second := k.spawning(ctx, oneInstance)
	if is, err := k.spawn(ctx, otherInstance, ""); err != nil || is.HypervisorName == "" {
		t.Errorf("another instance in the new process: %+v, %v", is, err)
	}
	k.release()
	a, b := <-first, <-second
	if a.err != nil || b.err != nil || a.is.HypervisorName == b.is.HypervisorName {
		t.Errorf("first: %+v, second: %+v", a, b)
	}
	waitGone(t, old)
}

// TestAbandonedSpawnIsOverBeforeTheNext: a process that gave no answer may still be at it. The next
// call about that instance waits for its answer in the same process, and for its end when another
// one has taken over.
func TestAbandonedSpawnIsOverBeforeTheNext(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k := keep(t, func(s *Spec) { s.Timeouts.Stop = 300 * time.Millisecond })
	ctx, cancel := context.WithCancel(context.Background())
	first := k.spawning(ctx, oneInstance)
	k.awaitLog("spawning " + oneInstance)
	cancel()
	if got := <-first; !errors.Is(got.err, context.Canceled) || !errors.Is(got.err, ErrOutcomeUnknown) {
		t.Errorf("the caller who left: %v", got.err)
	}
	old := k.replace()
	second := k.spawning(context.Background(), oneInstance) // a fault, if the first is still there
	waitGone(t, old)
	k.release()
	if got := <-second; got.err != nil {
		t.Error(got.err)
	}
}

func TestStopWaitsForASpawn(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	call := k.spawning(ctx, oneInstance)
	k.awaitLog("spawning " + oneInstance)
	stopped := make(chan error, 1)
	go func() { stopped <- k.Stop(ctx) }()
	k.eventually("the plugin to take no more calls", func() error {
		if _, err := k.Instances(ctx, "cn1"); !errors.Is(err, driverclient.ErrUnavailable) {
			return errors.New("it takes them")
		}
		return nil
	})
	k.release()
	if got := <-call; got.err != nil {
		t.Errorf("the call under way: %v", got.err)
	}
	testproc.NoError(t, <-stopped)
}

// TestStopWaitIsBounded: Stop does not wait longer than its timeout for a Spawn, neither of the
// process that serves nor of one that it replaced.
func TestStopWaitIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k := keep(t, func(s *Spec) { s.Timeouts.Stop = 300 * time.Millisecond })
	ctx := context.Background()
	one := k.spawning(ctx, oneInstance)
	k.awaitLog("spawning " + oneInstance)
	k.replace()
	other := k.spawning(ctx, otherInstance)
	k.awaitLog("spawning " + otherInstance)
	testproc.NoError(t, k.Stop(ctx))
	for _, call := range []chan outcome{one, other} {
		if got := <-call; !errors.Is(got.err, driverclient.ErrUnavailable) || !errors.Is(got.err, ErrOutcomeUnknown) {
			t.Errorf("got %v", got.err)
		}
	}
}

func TestInstanceEvents(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	k, ctx := keep(t, nil), context.Background()
	k.awaitEvent("", "") // the start
	testproc.Try(k.spawn(ctx, oneInstance, "")).Or(t)
	k.awaitEvent("cn1", oneInstance)
	testproc.Check(t, k.Reconfigure(ctx, k.spec))
	k.awaitEvent("", "")
	testproc.Check(t, k.Destroy(ctx, brokenNode, oneInstance))
	k.awaitLog("the connection to the daemon broke")
	k.awaitEvent("", "") // what happened meanwhile was not told
	testproc.Check(t, k.Destroy(ctx, "cn1", otherInstance))
	k.awaitEvent("cn1", otherInstance)
	_, n := k.await(0, "the start", is(Healthy))
	testproc.Check(t, syscall.Kill(k.Status().PID, syscall.SIGKILL))
	k.await(n, "the restart", is(Healthy))
	k.awaitEvent("", "")
}

// TestWithoutInstances: a plugin that does not announce them is not asked for them, and sends no
// events about them.
func TestWithoutInstances(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r, ctx := newRig(t), context.Background()
	var mu sync.Mutex
	told := 0
	spec := chaosSpec("", nil)
	spec.InstanceChanged = func(string, string) { mu.Lock(); told++; mu.Unlock() }
	p := r.mustStart(spec)
	_, list := p.Instances(ctx, "cn1")
	_, spawn := p.Spawn(ctx, "cn1", plugins.InstanceSpec{UUID: oneInstance}, oneNode(t))
	_, power := p.SetPower(ctx, "cn1", oneInstance, plugins.PowerRunning, false)
	for call, err := range map[string]error{"list": list,
		"spawn": spawn, "destroy": p.Destroy(ctx, "cn1", oneInstance), "power": power} {
		if !errors.Is(err, plugins.ErrUnsupported) || errors.Is(err, ErrOutcomeUnknown) {
			t.Errorf("%s: %v", call, err)
		}
	}
	testproc.Check(t, p.Reconfigure(ctx, spec))
	testproc.Check(t, p.Stop(ctx))
	mu.Lock()
	defer mu.Unlock()
	testproc.Equal(t, told, 0, "told %d times")
}

// lateKeeper answers no Spawn within its limit but those of one instance.
type lateKeeper struct {
	plugins.InstanceManager
	limit time.Duration
}

func (k lateKeeper) Instances(context.Context, string) ([]plugins.Instance, error) {
	time.Sleep(time.Second)
	return nil, &driverclient.CallError{Driver: "puppet",
		Call: "Instances", Err: &driverclient.TimeoutError{Limit: time.Second}}
}

func (k lateKeeper) Spawn(
	_ context.Context, _ string, spec plugins.InstanceSpec, _ *providertree.Tree,
) (plugins.Instance, error) {
	if spec.UUID == oneInstance {
		return plugins.Instance{UUID: oneInstance}, nil
	}
	time.Sleep(k.limit)
	return plugins.Instance{},
		&driverclient.CallError{Driver: "puppet", Call: "Spawn", Err: &driverclient.TimeoutError{Limit: k.limit}}
}

// TestSilenceAboutInstances: those that were silent side by side count once, any answer is
// forgiving, and so is work under way. It takes as many misses in a row, each of the whole limit,
// as for any other call.
func TestSilenceAboutInstances(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	play(t, Spec{}, []string{"0s healthy", "1h10m2s backoff", "1h10m3s healthy"}, func(s *stage) {
		const limit = 10 * time.Minute
		s.process(0).InstanceManager = lateKeeper{limit: limit}
		ctx := context.Background()
		spawn := func(uuids ...string) {
			var calls sync.WaitGroup
			for _, uuid := range uuids {
				calls.Go(func() { _, _ = s.Spawn(ctx, "cn1", plugins.InstanceSpec{UUID: uuid}, nil) })
			}
			calls.Wait()
			s.wait(0)
		}
		// 10 min: one miss
		spawn(otherInstance, rootUUID, "aaaaaaaa-0000-4000-8000-000000000003", "aaaaaaaa-0000-4000-8000-000000000004")
		spawn(otherInstance)                                                                      // 20 min: two
		if _, _, err := s.UpdateProviderTree(ctx, &providertree.Tree{}, "cn1", nil); err != nil { // another matter
			t.Error(err)
		}
		spawn(oneInstance)   // an answer
		spawn(otherInstance) // 30 min: one
		spawn(otherInstance) // 40 min: two
		spawn(oneInstance)   // an answer
		var busy sync.WaitGroup
		busy.Go(func() { spawn(otherInstance) }) // 50 min: one
		s.wait(0)
		for range 10 { // not answered, for it is at work
			_, _ = s.Instances(ctx, "cn1")
		}
		busy.Wait()
		for range 2 { // counted like any other call, and then it is killed at the third
			_, _ = s.Instances(ctx, "cn1")
		}
		spawn(otherInstance) // 1 h: two
		spawn(otherInstance) // 1 h 10 min: three
		testproc.Equal(t, s.process(0).how(), "killed", "the process was %q")
		s.wait(time.Minute)
	})
}
