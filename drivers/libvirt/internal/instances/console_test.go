// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConsoleLog: the end of the file that the domain says its console is written to, and of the
// one that virtlogd moved what was before to.
func TestConsoleLog(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		log := func(most int) string {
			t.Helper()
			out := testproc.Try(r.ConsoleLog(t.Context(), node, id(1), most)).Or(t)
			return string(out)
		}
		testproc.Equal(t, log(10), "", "of an instance that wrote nothing: %q")
		path := r.defined(1).ConsoleLog
		if !strings.HasPrefix(path, r.dir) {
			t.Fatalf("it is written to %q", path)
		}
		for name, text := range map[string]string{path: "second", path + ".0": "first "} {
			testproc.Check(t, os.WriteFile(name, []byte(text), 0o600))
		}
		for most, want := range map[int]string{100: "first second", 8: "t second", 6: "second", 3: "ond"} {
			testproc.Equal(t, log(most), want, "%d bytes: %q", most)
		}
		if _, err := r.ConsoleLog(t.Context(), node, id(2), 10); !errors.Is(err, plugins.ErrInstanceNotFound) {
			t.Errorf("of no instance: %v", err)
		}
		testproc.Check(t, errors.Join(os.Remove(path), os.Mkdir(path, 0o700)))
		testproc.Try(r.ConsoleLog(t.Context(), node, id(1), 10)).ErrorHas(t, "no regular file", "of something else: %v")
		r.world.domains[id(1)].XML = strings.Replace(r.world.domains[id(1)].XML, "<log ", "<gone ", 1)
		r.world.domains[id(1)].XML = strings.Replace(r.world.domains[id(1)].XML, "</log>", "</gone>", 1)
		var fault *plugins.InstanceFault
		if _, err := r.ConsoleLog(t.Context(), node, id(1), 10); !errors.As(err, &fault) {
			t.Errorf("of a domain without a log: %v", err)
		}
	})
}

// OpenConsole fails as the world says.
func (c *conn) OpenConsole(string) (io.ReadWriteCloser, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.console != nil {
		return nil, c.console
	}
	c.opened++
	return &worldConsole{world: c.world}, nil
}

type worldConsole struct {
	io.ReadWriter
	world *world
}

func (c *worldConsole) Close() error {
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.opened--
	return nil
}

// TestOpenConsole: what cannot be opened says why, and what no caller waits for any more is closed.
func TestOpenConsole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		c, err := r.OpenConsole(t.Context(), node, id(1))
		if err != nil || r.opened != 1 {
			t.Fatalf("%d, %v", r.opened, err)
		}
		testproc.NoError(t, c.Close())
		for cause, want := range map[error]string{hypervisor.ErrState: "it does not run",
			hypervisor.ErrInUse: "its serial console is in use; it has one user at a time"} {
			r.console = cause
			var fault *plugins.InstanceFault
			if _, err := r.OpenConsole(t.Context(), node, id(1)); !errors.As(err, &fault) || fault.Reason != want {
				t.Errorf("%v: %v", cause, err)
			}
		}
		r.console = hypervisor.ErrNotFound
		for _, uuid := range []string{id(1), id(2)} {
			if _, err := r.OpenConsole(t.Context(), node, uuid); !errors.Is(err, plugins.ErrInstanceNotFound) {
				t.Errorf("of no instance: %v", err)
			}
		}
		r.console = nil
		for was, want := range map[string]string{`type="pty"`: `type "file"`, `<serial`: "no serial console"} {
			text := r.world.domains[id(1)].XML
			changed := strings.Replace(text, was,
				map[string]string{`type="pty"`: `type="file"`, `<serial`: `<parallel`}[was], 1)
			if was == "<serial" {
				changed = strings.Replace(changed, "</serial>", "</parallel>", 1)
			}
			r.world.domains[id(1)].XML = changed
			var fault *plugins.InstanceFault
			if _, err := r.OpenConsole(t.Context(), node, id(1)); !errors.As(err, &fault) ||
				!strings.Contains(fault.Reason, want) {
				t.Errorf("%s: %v in %s", was, err, changed)
			}
			r.world.domains[id(1)].XML = text
			r.world.domains[id(1)].Revision++
		}
		var late handover
		late.abandon()
		r.opened++
		late.deliver(&worldConsole{world: r.world})
		early := handover{}
		r.opened++
		early.deliver(&worldConsole{world: r.world})
		early.abandon()
		testproc.Equal(t, r.opened, 0, "%d consoles stay open")
	})
}
