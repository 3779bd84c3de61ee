// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// overheard counts what goes over the wire to plugins, by method. What go-plugin says to its other
// half is not counted.
type overheard struct {
	mu    sync.Mutex
	calls map[string]int
}

func (o *overheard) note(method string) {
	name, ours := strings.CutPrefix(method, strings.TrimSuffix(driverv1.Plugin_Info_FullMethodName, "Plugin/Info"))
	if !ours {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls[name]++
}

// since returns what was counted, and begins again.
func (o *overheard) since() map[string]int {
	o.mu.Lock()
	defer o.mu.Unlock()
	out := o.calls
	o.calls = map[string]int{}
	return out
}

func (o *overheard) options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				o.note(method)
				return invoke(ctx, method, request, reply, conn, opts...)
			}),
		grpc.WithChainStreamInterceptor(
			func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer,
				opts ...grpc.CallOption) (grpc.ClientStream, error) {
				o.note(method)
				return open(ctx, desc, conn, method, opts...)
			}),
	}
}

// believing is a Placement that takes everything.
type believing struct {
	resourcetracker.Placement // nothing is reshaped
	desired, known            map[string]*providertree.Tree
}

func (b *believing) Tree(_ context.Context, uuid, name string) (*providertree.Tree, error) {
	if b.known[uuid] == nil {
		b.known[uuid] = &providertree.Tree{}
		if err := b.known[uuid].AddRoot(uuid, name); err != nil {
			return nil, err
		}
	}
	return b.known[uuid].Clone(), nil
}

func (b *believing) Plan(known, desired *providertree.Tree) reportclient.Plan {
	b.desired[desired.UUIDs()[0]] = desired.Clone()
	return reportclient.NewPlan(known, desired)
}

func (b *believing) Storable(_, desired *providertree.Tree) *providertree.Tree { return desired }

func (b *believing) Apply(_ context.Context, root string, _ reportclient.Plan) error {
	b.known[root] = b.desired[root]
	return nil
}

// passes tells of every pass that has ended.
type passes chan error

func (p passes) Begin(ctx context.Context, step resourcetracker.Step, _, _ string) (context.Context, func(error)) {
	return ctx, func(err error) {
		if step == resourcetracker.StepPass {
			p <- err
		}
	}
}

func (p passes) Count(resourcetracker.Event, string, string, int) {}

// TestWhatIsAskedOfAPlugin is the budget of calls in docs/drivers.md: a steady pass is one
// AvailableNodes, and one UpdateProviderTree for each node; guests are asked for once in five
// minutes. Nothing else goes over the wire.
func TestWhatIsAskedOfAPlugin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const nodes, turns = 3, 5
	dir := testproc.SocketDir(t)
	driver := filepath.Join(dir, "compute-driver-fake")
	binaries.Copy(t, "compute-driver-fake", driver)
	counted := &overheard{calls: map[string]int{}}
	host := testproc.Try(
		pluginhost.New(pluginhost.Options{RuntimeDir: dir, Logger: zerolog.Nop(), Dial: counted.options()})).Or(t)
	t.Cleanup(func() { testproc.Check(t, host.Close()) })
	var configured []string
	for i := range nodes {
		configured = append(configured,
			fmt.Sprintf(
				`{"name":"cn%d","uuid":"aaaaaaaa-0000-4000-8000-00000000000%d","inventories":{"VCPU":{"total":8}}}`, i,
				i))
	}
	const patience = testproc.Patience
	p := testproc.Try(host.Plugin(pluginhost.Spec{
		Name: "fake", Path: driver,
		Config:  []byte(`{"instances":{},"guest_list":[],"nodes":[` + strings.Join(configured, ",") + `]}`),
		Restart: pluginhost.Restart{HealthInterval: time.Hour},
		Timeouts: driverclient.Timeouts{Handshake: patience, Info: patience, Configure: patience, Nodes: patience,
			Update: patience, Health: patience, Stop: patience},
	})).Or(t)
	testproc.Check(t, p.Start(t.Context()))
	ended := make(passes, nodes)
	tracker := resourcetracker.New(resourcetracker.Config{
		Name: "fake", Driver: p,
		Placement: &believing{desired: map[string]*providertree.Tree{}, known: map[string]*providertree.Tree{}},
		Timings: resourcetracker.Timings{Interval: time.Hour, PassDeadline: patience,
			BackoffMin: time.Second, BackoffMax: time.Minute},
		Logger: zerolog.Nop(), Observer: ended, Seen: resourcetracker.OpenSeenGuests(t.TempDir()),
	})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- tracker.Run(ctx) }()
	turn := func() {
		t.Helper()
		for range nodes {
			select {
			case err := <-ended:
				testproc.NoErrorf(t, err, "a pass failed")
			case <-time.After(patience):
				t.Fatal("no pass has ended")
			}
		}
	}
	turn()
	for range turns {
		tracker.Refresh("the test")
		turn()
	}
	stop()
	testproc.NoError(t, <-over)
	testproc.NoError(t, p.Stop(context.Background()))
	want := map[string]int{
		"Plugin/Info": 1, "Plugin/Configure": 1, "Plugin/Shutdown": 1, "Driver/Watch": 1,
		"Instances/Watch": 1, "Driver/Guests": nodes,
		"Driver/AvailableNodes": 1 + turns, "Driver/UpdateProviderTree": nodes * (1 + turns),
	}
	if diff := cmp.Diff(want, counted.since()); diff != "" {
		t.Errorf("calls in the life of a plugin with a start and %d steady turns (-want +got):\n%s", turns, diff)
	}
}
