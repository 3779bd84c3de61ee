// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	oneInstance   = "aaaaaaaa-0000-4000-8000-000000000001"
	otherInstance = "aaaaaaaa-0000-4000-8000-000000000002"
)

// managingDriver manages instances as its functions say.
type managingDriver struct {
	testDriver
	list    func() ([]Instance, error)
	spawn   func(ctx context.Context, spec InstanceSpec, tree *providertree.Tree) (Instance, error)
	destroy func(uuid string) error
	power   func(uuid string, to PowerState, hard bool) (Instance, error)
	events  chan [2]string
}

func (d *managingDriver) Instances(context.Context, string) ([]Instance, error) { return d.list() }

func (d *managingDriver) Spawn(
	ctx context.Context, _ string, spec InstanceSpec, tree *providertree.Tree,
) (Instance, error) {
	return d.spawn(ctx, spec, tree)
}

func (d *managingDriver) Destroy(_ context.Context, _, uuid string) error { return d.destroy(uuid) }

func (d *managingDriver) SetPower(_ context.Context, _, uuid string, to PowerState, hard bool) (Instance, error) {
	return d.power(uuid, to, hard)
}

func (d *managingDriver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	for {
		select {
		case e, ok := <-d.events:
			if !ok {
				panic("a defect of the driver")
			}
			changed(e[0], e[1])
		case <-ctx.Done():
			return nil
		}
	}
}

// managing serves a driver that is configured.
func managing(t *testing.T, d Driver) client {
	t.Helper()
	c := serve(t, d)
	testproc.Try(c.Configure(context.Background(), &driverv1.ConfigureRequest{})).Or(t)
	return c
}

func spawnOf(t *testing.T, uuid string) *driverv1.SpawnInstanceRequest {
	t.Helper()
	return &driverv1.SpawnInstanceRequest{Node: "cn1",
		Tree: protocol.FromTree(oneNode(t)), Spec: &driverv1.InstanceSpec{Uuid: uuid}}
}

func (c client) spawn(ctx context.Context, t *testing.T, uuid string) error {
	t.Helper()
	_, err := c.instances.Spawn(ctx, spawnOf(t, uuid))
	return err
}

func TestSpecArrives(t *testing.T) {
	root := oneNode(t).Roots()[0]
	var got InstanceSpec
	d := &managingDriver{spawn: func(_ context.Context, spec InstanceSpec, tree *providertree.Tree) (Instance, error) {
		if !tree.Exists(root) {
			t.Error("the tree is missing")
		}
		got = spec
		return Instance{UUID: spec.UUID, Name: "bad \xff name", Power: PowerRunning,
			HypervisorName: "instance-00000001"}, nil
	}}
	reply := testproc.Try(managing(t, d).instances.Spawn(context.Background(), &driverv1.SpawnInstanceRequest{
		Node: "cn1", Tree: protocol.FromTree(oneNode(t)), Spec: &driverv1.InstanceSpec{
			Uuid: strings.ToUpper(oneInstance), Name: "web", ProjectId: "p", UserId: "u", Image: "debian",
			UserData: []byte("#cloud-config"), KeyName: "k", PublicKey: "ssh-rsa A",
			Flavor: &driverv1.Flavor{Name: "m1", Vcpus: 1, MemoryMb: 2, RootGb: 3, EphemeralGb: 4, SwapMb: 5,
				ExtraSpecs: map[string]string{"hw:a": "b"}},
			Allocations: map[string]*driverv1.Resources{strings.ToUpper(
				root): {Amounts: map[string]int64{"VCPU": 1}}},
			ImageProperties: map[string]string{"c": "d"},
			Metadata:        map[string]string{"e": "f"},
		}})).Or(t)
	want := InstanceSpec{
		UUID: oneInstance, Name: "web", ProjectID: "p", UserID: "u", Image: "debian", UserData: []byte("#cloud-config"),
		KeyName: "k", PublicKey: "ssh-rsa A",
		Flavor: Flavor{Name: "m1", VCPUs: 1, MemoryMB: 2, RootGB: 3, EphemeralGB: 4, SwapMB: 5,
			ExtraSpecs: map[string]string{"hw:a": "b"}},
		Allocations: providertree.ProviderResources{root: {"VCPU": 1}}, ImageProperties: map[string]string{"c": "d"},
		Metadata: map[string]string{"e": "f"},
	}
	testproc.Same(t, cmp.Diff(want, got))
	is := &driverv1.Instance{Uuid: oneInstance, Name: "bad \uFFFD name",
		PowerState: driverv1.PowerState_POWER_STATE_RUNNING, HypervisorName: "instance-00000001"}
	testproc.Same(t, cmp.Diff(is, reply.GetInstance(), protocmp.Transform()))
}

// TestTraceparentArrives: the trace context that the agent sends is in the context of a call.
func TestTraceparentArrives(t *testing.T) {
	const sent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := "none"
	c := managing(t, &managingDriver{spawn: func(ctx context.Context, _ InstanceSpec,
		_ *providertree.Tree) (Instance, error) {
		got = Traceparent(ctx)
		return Instance{UUID: oneInstance}, nil
	}})
	for _, want := range []string{sent, ""} {
		ctx := t.Context()
		if want != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, protocol.TraceparentKey, want)
		}
		if err := c.spawn(ctx, t, oneInstance); err != nil || got != want {
			t.Errorf("sent %q: the call has %q; %v", want, got, err)
		}
	}
}

// TestRequestIDArrives: the id of the client's request is in the context of a call and in the lines
// of its logger; what is no id is ignored.
func TestRequestIDArrives(t *testing.T) {
	const request = "req-11111111-2222-4333-8444-555555555555"
	for sent, want := range map[string]string{request: request, "": "", "req-\"},{": "", strings.Repeat("a", 200): ""} {
		var got string
		c := managing(t,
			&managingDriver{spawn: func(ctx context.Context, _ InstanceSpec, _ *providertree.Tree) (Instance, error) {
				got = RequestID(ctx)
				log := Logger(ctx)
				log.Info().Msg("spawned")
				return Instance{UUID: oneInstance}, nil
			}})
		testproc.Check(t,
			c.spawn(metadata.AppendToOutgoingContext(t.Context(), protocol.RequestIDKey, sent), t, oneInstance))
		if line := c.log.String(); got != want ||
			strings.Contains(line, `"request_id":"`+request+`"`) != (want != "") ||
			strings.Contains(line, "request_id") != (want != "") {
			t.Errorf("sent %q: the call has %q, and the line is %s", sent, got, line)
		}
	}
}

func TestOtherCallsAboutInstancesArrive(t *testing.T) {
	ctx, did := context.Background(), []string{}
	d := &managingDriver{
		list: func() ([]Instance, error) {
			return []Instance{{UUID: oneInstance, Power: 1 << 40}, {UUID: "x"}},
				nil
		},
		destroy: func(uuid string) error { did = append(did, "destroy "+uuid); return nil },
		power: func(uuid string, to PowerState, hard bool) (Instance, error) {
			did = append(did, fmt.Sprint(uuid, " ", to, " ", hard))
			return Instance{UUID: uuid, Power: to}, nil
		},
	}
	c := managing(t, d)
	list, err := c.instances.List(ctx, &driverv1.ListInstancesRequest{Node: "cn1"})
	if err != nil || len(list.GetInstances()) != 2 ||
		protocol.CheckPower(list.GetInstances()[0].GetPowerState()) == nil {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := c.instances.Destroy(ctx,
		&driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: oneInstance}); err != nil {
		t.Error(err)
	}
	power := &driverv1.SetInstancePowerRequest{Node: "cn1",
		Uuid: oneInstance, PowerState: driverv1.PowerState_POWER_STATE_SHUTDOWN, Hard: true}
	if reply, err := c.instances.SetPower(ctx, power); err != nil ||
		reply.GetInstance().GetPowerState() != driverv1.PowerState_POWER_STATE_SHUTDOWN {
		t.Errorf("power: %v, %v", reply, err)
	}
	testproc.Same(t, cmp.Diff([]string{"destroy " + oneInstance, oneInstance + " Shutdown true"}, did))
}

// TestInstancesThatTheAgentMustNotAskFor: the driver does not see them.
func TestInstancesThatTheAgentMustNotAskFor(t *testing.T) {
	c, ctx := managing(t, &managingDriver{}), context.Background() // whose nil functions would panic
	spawn := func(change func(*driverv1.SpawnInstanceRequest)) error {
		req := spawnOf(t, oneInstance)
		change(req)
		_, err := c.instances.Spawn(ctx, req)
		return err
	}
	_, list := c.instances.List(ctx, &driverv1.ListInstancesRequest{})
	_, destroy := c.instances.Destroy(ctx, &driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: "web"})
	_, nowhere := c.instances.Destroy(ctx, &driverv1.DestroyInstanceRequest{Uuid: oneInstance})
	_, paused := c.instances.SetPower(ctx,
		&driverv1.SetInstancePowerRequest{Node: "cn1", Uuid: oneInstance, PowerState: 3})
	_, whose := c.instances.SetPower(ctx, &driverv1.SetInstancePowerRequest{Node: "cn1", PowerState: 1})
	for name, err := range map[string]error{
		"list of no node": list, "destroy of no uuid": destroy, "destroy on no node": nowhere,
		"to a state that cannot be": paused, "power of nothing": whose,
		"no spec": spawn(func(r *driverv1.SpawnInstanceRequest) { r.Spec = nil }),
		"no node": spawn(func(r *driverv1.SpawnInstanceRequest) { r.Node = "" }),
		"no tree": spawn(func(r *driverv1.SpawnInstanceRequest) { r.Tree = nil }),
		"no uuid": spawn(func(r *driverv1.SpawnInstanceRequest) { r.Spec.Uuid = "" }),
		"user data": spawn(
			func(r *driverv1.SpawnInstanceRequest) { r.Spec.UserData = make([]byte, protocol.MaxUserData+1) }),
	} {
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the agent's ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInstancesBeforeTheFirstConfiguration(t *testing.T) {
	c := serve(t, &managingDriver{destroy: func(string) error { return nil }})
	destroy := func() error {
		_, err := c.instances.Destroy(context.Background(),
			&driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: oneInstance})
		return err
	}
	if f := protocol.FailureOf(destroy()); f.Kind != protocol.KindNotReady {
		t.Errorf("got %+v", f)
	}
	testproc.Try(c.Configure(context.Background(), &driverv1.ConfigureRequest{})).Or(t)
	testproc.NoError(t, destroy())
}

// TestErrorsAboutInstances: the kind, the uuid and the words arrive, however the driver puts them.
func TestErrorsAboutInstances(t *testing.T) {
	var answer error
	c := managing(t, &managingDriver{destroy: func(string) error { return answer }})
	for _, row := range []struct {
		err  error
		want protocol.Failure
	}{
		{ErrInstanceNotFound, protocol.Failure{Kind: protocol.KindInstanceNotFound, UUID: oneInstance,
			Message: "no such instance: " + oneInstance}},
		{&InstanceNotFound{UUID: "web"}, protocol.Failure{Kind: protocol.KindInstanceNotFound, UUID: oneInstance,
			Message: "no such instance: " + oneInstance}},
		{fmt.Errorf("looking: %w", ErrInstanceNotFound),
			protocol.Failure{Kind: protocol.KindInstanceNotFound, UUID: oneInstance,
				Message: "looking: no such instance"}},
		{&InstanceFault{Reason: "no capacity"},
			protocol.Failure{Kind: protocol.KindInstanceFault, UUID: oneInstance, Words: "no capacity",
				Message: "instance " + oneInstance + ": no capacity"}},
		{fmt.Errorf("making a disk: %w", &InstanceFault{Reason: "no capacity"}),
			protocol.Failure{Kind: protocol.KindInstanceFault, UUID: oneInstance, Words: "no capacity",
				Message: "making a disk: instance: no capacity"}},
		{&NotReady{Reason: "asleep"},
			protocol.Failure{Kind: protocol.KindNotReady, Words: "asleep", Message: "driver not ready: asleep"}},
		{fmt.Errorf("x: %w", ErrUnsupported),
			protocol.Failure{Kind: protocol.KindUnsupported, Message: "x: not supported by this driver"}},
		{errors.New("oh"), protocol.Failure{Message: "oh"}},
	} {
		answer = row.err
		_, err := c.instances.Destroy(context.Background(),
			&driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: oneInstance})
		testproc.Samef(t, cmp.Diff(row.want, protocol.FailureOf(err)), "%v", row.err)
	}
}

func TestPanicAboutAnInstanceFailsThatCallOnly(t *testing.T) {
	d := &managingDriver{spawn: func(_ context.Context, spec InstanceSpec, _ *providertree.Tree) (Instance, error) {
		if spec.UUID == oneInstance {
			panic("oh no")
		}
		return Instance{UUID: spec.UUID}, nil
	}}
	c := managing(t, d)
	for range 2 { // the panic releases the lock of the instance
		if err := c.spawn(context.Background(), t, oneInstance); status.Code(err) != codes.Internal ||
			!strings.Contains(err.Error(), "panicked in Spawn: oh no") {
			t.Errorf("got %v", err)
		}
	}
	testproc.NoError(t, c.spawn(context.Background(), t, otherInstance))
	if !strings.Contains(c.log.String(), `"call":"Spawn"`) ||
		!strings.Contains(c.log.String(), "server_instances_test.go") {
		t.Errorf("log: %s", c.log)
	}
}

// TestCallsAboutInstancesWaitForTheirOwnOnly: two Spawns and an update are inside at the same time;
// one about the same instance is not.
func TestCallsAboutInstancesWaitForTheirOwnOnly(t *testing.T) {
	inside, leave := make(chan string, 8), make(chan struct{})
	d := &managingDriver{
		spawn: func(_ context.Context, spec InstanceSpec, _ *providertree.Tree) (Instance, error) {
			inside <- spec.UUID
			<-leave // whatever its context says
			return Instance{UUID: spec.UUID}, nil
		},
		destroy: func(string) error { // also for the call that was given up, which may still get in
			select {
			case <-leave:
			default:
				t.Error("two calls about one instance are in the driver")
			}
			return nil
		},
		list: func() ([]Instance, error) { return nil, nil },
	}
	d.nodes = func(context.Context) ([]Node, error) { return nil, nil }
	c := managing(t, d)
	var calls sync.WaitGroup
	for _, uuid := range []string{oneInstance, otherInstance} {
		calls.Go(func() {
			testproc.NoError(t, c.spawn(context.Background(), t, uuid))
		})
	}
	if got := map[string]bool{<-inside: true, <-inside: true}; !got[oneInstance] || !got[otherInstance] {
		t.Errorf("inside: %v", got)
	}
	if _, err := c.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{}); err != nil {
		t.Errorf("nodes: %v", err)
	}
	if _, err := c.Configure(context.Background(), &driverv1.ConfigureRequest{}); err != nil {
		t.Errorf("configure: %v", err)
	}
	if _, err := c.instances.List(context.Background(), &driverv1.ListInstancesRequest{Node: "cn1"}); err != nil {
		t.Errorf("list: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	req := &driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: strings.ToUpper(oneInstance)}
	if _, err := c.instances.Destroy(ctx, req); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a second call about the same instance: %v", err)
	}
	close(leave)
	calls.Wait()
	if _, err := c.instances.Destroy(context.Background(), req); err != nil {
		t.Error(err)
	}
}

func TestShutdownWaitsForASpawn(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	c := managing(t, &managingDriver{spawn: func(_ context.Context, spec InstanceSpec,
		_ *providertree.Tree) (Instance, error) {
		close(inside)
		<-leave
		return Instance{UUID: spec.UUID}, nil
	}})
	stream, err := c.instances.Watch(context.Background(), &driverv1.WatchInstancesRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	testproc.Check(t, err)
	spawned := make(chan error, 1)
	go func() { spawned <- c.spawn(context.Background(), t, oneInstance) }()
	<-inside
	if _, err := c.Shutdown(context.Background(),
		&driverv1.ShutdownRequest{GraceMs: 10}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("with a Spawn under way: %v", err)
	}
	if err := c.spawn(context.Background(), t, otherInstance); status.Code(err) != codes.Unavailable {
		t.Errorf("new ones are refused: %v", err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the stream ends: %v", err)
	}
	close(leave)
	testproc.NoError(t, <-spawned)
	if _, err := c.Shutdown(context.Background(), &driverv1.ShutdownRequest{}); err != nil {
		t.Error(err)
	}
}

func TestEventsAboutInstancesStream(t *testing.T) {
	d := &managingDriver{events: make(chan [2]string, 2)}
	stream, err := serve(t, d).instances.Watch(context.Background(), &driverv1.WatchInstancesRequest{HeartbeatMs: 5})
	testproc.Check(t, err)
	d.events <- [2]string{"cn1", oneInstance}
	d.events <- [2]string{"", "\xff"}
	var got []string
	for beats := 0; len(got) < 2 || beats < 3; {
		event := testproc.Try(stream.Recv()).Or(t)
		if event.GetHeartbeat() != nil {
			beats++
		} else {
			got = append(got, event.GetInstance().GetNode()+" "+event.GetInstance().GetUuid())
		}
	}
	testproc.Same(t, cmp.Diff([]string{"cn1 " + oneInstance, " \uFFFD"}, got))
	close(d.events)
	for err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "panicked in WatchInstances") {
		t.Errorf("got %v", err)
	}
}

// TestWithoutInstances: a call fails as unsupported, instead of returning an empty list.
func TestWithoutInstances(t *testing.T) {
	c, ctx := managing(t, &testDriver{}), context.Background()
	_, list := c.instances.List(ctx, &driverv1.ListInstancesRequest{Node: "cn1"})
	_, destroy := c.instances.Destroy(ctx, &driverv1.DestroyInstanceRequest{Node: "cn1", Uuid: oneInstance})
	_, power := c.instances.SetPower(ctx,
		&driverv1.SetInstancePowerRequest{Node: "cn1", Uuid: oneInstance, PowerState: 1})
	stream, watch := c.instances.Watch(ctx, &driverv1.WatchInstancesRequest{})
	if watch == nil {
		_, watch = stream.Recv()
	}
	check := &driverv1.CheckSpawnRequest{Node: "cn1",
		Tree: protocol.FromTree(oneNode(t)), Spec: &driverv1.InstanceSpec{Uuid: oneInstance}}
	_, none := c.instances.CheckSpawn(ctx, check)
	_, cannot := managing(t, &managingDriver{}).instances.CheckSpawn(ctx, check)
	again := &driverv1.RestoreInstanceRequest{Node: "cn1", Tree: check.GetTree(), Spec: check.GetSpec()}
	_, unrestored := c.instances.Restore(ctx, again)
	_, unable := managing(t, &managingDriver{}).instances.Restore(ctx, again)
	for call, err := range map[string]error{"check": none,
		"check of a driver that cannot": cannot, "restore": unrestored, "restore of a driver that cannot": unable,
		"list": list, "spawn": c.spawn(ctx, t, oneInstance), "destroy": destroy, "power": power, "watch": watch} {
		if status.Code(err) != codes.Unimplemented || protocol.FailureOf(err).Kind != protocol.KindUnsupported {
			t.Errorf("%s: %v", call, err)
		}
	}
}
