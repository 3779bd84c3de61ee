// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// partKey is the variable by which the test binary also plays a driver, and a careless program that
// starts one.
const partKey = "PLUGINS_TEST_PART"

func TestMain(m *testing.M) {
	switch os.Getenv(partKey) {
	case "driver":
		Serve(&testDriver{})
	case "starter":
		startAndWait()
	default:
		goleak.VerifyTestMain(m)
	}
}

// startAndWait starts a driver without asking the kernel to end it with us, says its process id,
// and waits.
func startAndWait() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), partKey+"=driver", protocol.CookieKey+"="+protocol.CookieValue)
	out, err := cmd.StdoutPipe()
	if err != nil {
		panic(err)
	}
	if err := cmd.Start(); err != nil {
		panic(err)
	}
	var line [1]byte
	if _, err := out.Read(line[:]); err != nil { // the handshake: it is up
		panic(err)
	}
	fmt.Println(cmd.Process.Pid)
	select {}
}

// testDriver does what its functions say.
type testDriver struct {
	update func(ctx context.Context, tree *providertree.Tree,
		allocations providertree.Allocations) (providertree.Allocations, error)
	nodes    func(ctx context.Context) ([]Node, error)
	shutdown func()

	mu     sync.Mutex
	config string
}

func (d *testDriver) Info() Info           { return Info{Name: "test", Version: "1.2.3"} }
func (d *testDriver) ConfigSchema() []byte { return []byte(`{"type":"object"}`) }

func (d *testDriver) Configure(_ context.Context, raw json.RawMessage, host HostInfo) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.config = host.Name + strings.TrimSpace(string(raw))
	return nil
}

func (d *testDriver) AvailableNodes(ctx context.Context) ([]Node, error) { return d.nodes(ctx) }

func (d *testDriver) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, _ string, a providertree.Allocations,
) (providertree.Allocations, error) {
	return d.update(ctx, tree, a)
}

func (d *testDriver) Shutdown(context.Context) error {
	if d.shutdown != nil {
		d.shutdown()
	}
	return nil
}

// watchingDriver has the other optional abilities too.
type watchingDriver struct {
	testDriver
	events  chan string
	problem error
}

func (d *watchingDriver) Watch(ctx context.Context, changed func(string)) error {
	for {
		select {
		case node, ok := <-d.events:
			if !ok {
				return nil
			}
			changed(node)
		case <-ctx.Done():
			return nil
		}
	}
}

func (d *watchingDriver) Health(context.Context) error { return d.problem }
