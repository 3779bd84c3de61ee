// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// chaosMain is the main function of the faulty driver.
func chaosMain(mode string) {
	switch mode {
	case "exit-at-start":
		fmt.Fprintln(os.Stderr, "cannot find the library that I need")
		os.Exit(3)
	case "slow-start":
		forever()
	case "noisy-start":
		fmt.Println("a line on standard output before the handshake")
		fmt.Fprintln(os.Stderr, `{"@message":1}`)
		fmt.Fprintln(os.Stderr, `{"@message":"x","@level":[],"@timestamp":{}}`)
		fmt.Fprintln(os.Stderr, strings.Repeat("z", 300_000))
		_, _ = os.Stderr.Write([]byte{0xff, 0xfe, 0x00, '\n'})
	case "instanceDriver":
		plugins.Serve(newInstanceDriver())
		return
	case "able":
		plugins.Serve(&optional{})
		return
	}
	plugins.Serve(&chaos{})
}

// forever never returns. In a process that does nothing else a bare select would not do: the
// runtime sees that nothing can ever happen, and ends it, unless the program is linked with cgo.
func forever() {
	never := make(chan os.Signal, 1)
	signal.Notify(never, syscall.SIGUSR1)
	for {
		<-never
	}
}

// chaos is a driver that does what its configuration says, in the call that the configuration
// names.
type chaos struct {
	cfg struct {
		// Update is what UpdateProviderTree does.
		Update string `json:"update"`
		// Health is what Health does.
		Health string `json:"health"`
	}
}

func (c *chaos) Info() plugins.Info {
	return plugins.Info{Name: "chaos", Version: "1.0"}
}
func (c *chaos) ConfigSchema() []byte { return nil }

func (c *chaos) Configure(ctx context.Context, raw json.RawMessage, _ plugins.HostInfo) error {
	log := plugins.Logger(ctx)
	log.Info().Str("driver", "another driver").Int("answer", 42).Msg("configuring")
	next := c.cfg
	next.Update, next.Health = "", ""
	if err := plugins.DecodeConfig(raw, &next); err != nil {
		return fmt.Errorf("reading the table: %w", err)
	}
	if next.Update == "refuse" {
		return &plugins.ConfigError{Key: "update", Problem: "this is refused"}
	}
	if next.Update == "hang-configure" {
		select {}
	}
	c.cfg = next
	return nil
}

func (c *chaos) AvailableNodes(context.Context) ([]plugins.Node, error) {
	if c.cfg.Update == "not-ready" {
		return nil, fmt.Errorf("asking the daemon: %w", &plugins.NotReady{Reason: "it sleeps"})
	}
	return []plugins.Node{{Name: "cn1"}}, nil
}

func (c *chaos) Health(context.Context) error {
	switch c.cfg.Health {
	case "problem":
		return errors.New("the daemon does not answer")
	case "hang":
		select {}
	}
	return nil
}

func (c *chaos) Warnings() []plugins.Warning {
	if c.cfg.Health == "warn" {
		return []plugins.Warning{{Name: "Fan 7", Text: "it is loud"}}
	}
	return nil
}

func (c *chaos) Shutdown(context.Context) error {
	if path := os.Getenv(scratchKey); path != "" {
		return os.WriteFile(path, []byte("tidied up"), 0o600)
	}
	return nil
}

func (c *chaos) Watch(ctx context.Context, changed func(string)) error {
	changed("cn1")
	<-ctx.Done()
	return nil
}

func (c *chaos) ClassRenames() map[string]string {
	if c.cfg.Update == "rename" {
		return map[string]string{"CUSTOM_A": "A"}
	}
	return nil
}

func (c *chaos) UpdateProviderTree(
	ctx context.Context, tree *providertree.Tree, node string, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	root, _ := tree.ProviderByName(node)
	switch c.cfg.Update {
	case "hang":
		select {}
	case "slow":
		fmt.Fprintln(os.Stderr, "slow call begins")
		awaitFile(os.Getenv(scratchKey)) // the test makes it
	case "crash":
		fmt.Fprintln(os.Stderr, "panic: not a real one")
		os.Exit(7)
	case "panic":
		panic("a defect of the driver")
	case "own-deadline":
		return nil, fmt.Errorf("the hypervisor: %w", context.DeadlineExceeded)
	case "elsewhere": // leaves its process group itself, for that of the agent
		group, err := syscall.Getpgid(os.Getppid())
		if err != nil {
			return nil, err
		}
		return nil, errors.Join(errors.New("moved"), syscall.Setpgid(0, group))
	case "reshape":
		if allocations == nil {
			return nil, fmt.Errorf("VGPU moves to a child: %w", plugins.ErrReshapeNeeded)
		}
		for consumer, c := range allocations {
			for provider, amounts := range c.Resources {
				return nil, &plugins.ReshapeFailed{Reason: "no capacity", Hint: "free capacity",
					Violations: []plugins.Violation{
						{Consumer: consumer, Provider: provider, Class: "VGPU",
							Problem: fmt.Sprintf("%d are too many", amounts["VGPU"]), Hint: "hold less"},
					}}
			}
		}
	case "huge":
		for i := range 9 {
			res := make([]providertree.Resource, 0, 1000)
			for j := range cap(res) {
				res = append(res,
					providertree.Resource{Identifier: fmt.Sprintf("%d-%d", i, j),
						Metadata: strings.Repeat("m", 10_000)})
			}
			id, _ := providertree.ChildUUID(root.UUID, fmt.Sprint(i))
			_ = tree.AddChild(root.UUID, id, fmt.Sprint("child", i))
			_, _ = tree.SetResources(id, map[string][]providertree.Resource{"CUSTOM_X": res})
		}
	case "no-root":
		_, err := tree.Remove(root.UUID)
		return nil, err
	case "generation":
		_ = tree.SetGeneration(root.UUID, root.Generation+5)
	case "environment":
		return nil, errors.New(strings.Join(os.Environ(), "\n"))
	case "child-environment":
		out, err := exec.Command("env").Output()
		return nil, errors.Join(errors.New(string(out)), err)
	case "descriptors":
		entries, _ := os.ReadDir("/proc/self/fd")
		var names []string
		for _, e := range entries {
			to, _ := os.Readlink("/proc/self/fd/" + e.Name())
			names = append(names, e.Name()+"="+to)
		}
		comm, _ := os.ReadFile("/proc/self/comm")
		return nil, fmt.Errorf("comm=%s %s", strings.TrimSpace(string(comm)), strings.Join(names, "\n"))
	case "print":
		fmt.Println("printed on standard output")
		fmt.Fprintln(os.Stderr, "printed on standard error")
	case "grandchild":
		cmd := exec.Command("sleep", "300")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%d", cmd.Process.Pid)
	case "runaway": // leaves the process group and keeps our standard error open
		cmd := exec.Command("sleep", "300")
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%d", cmd.Process.Pid)
	}
	_, err := tree.SetInventory(root.UUID, "VCPU", providertree.Inventory{Total: 8})
	return allocations, err
}
