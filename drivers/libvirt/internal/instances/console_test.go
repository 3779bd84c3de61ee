// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/plugins"
)

// TestConsoleLog: the end of the file that the domain says its console is written to, and of the
// one that virtlogd moved what was before to.
func TestConsoleLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Config{})
		r.mustSpawn(request(1))
		log := func(most int) string {
			t.Helper()
			out, err := r.ConsoleLog(t.Context(), node, id(1), most)
			if err != nil {
				t.Fatal(err)
			}
			return string(out)
		}
		if got := log(10); got != "" {
			t.Errorf("of an instance that wrote nothing: %q", got)
		}
		path := r.defined(1).ConsoleLog
		if !strings.HasPrefix(path, r.dir) {
			t.Fatalf("it is written to %q", path)
		}
		for name, text := range map[string]string{path: "second", path + ".0": "first "} {
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for most, want := range map[int]string{100: "first second", 8: "t second", 6: "second", 3: "ond"} {
			if got := log(most); got != want {
				t.Errorf("%d bytes: %q, want %q", most, got, want)
			}
		}
		if _, err := r.ConsoleLog(t.Context(), node, id(2), 10); !errors.Is(err, plugins.ErrInstanceNotFound) {
			t.Errorf("of no instance: %v", err)
		}
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.ConsoleLog(t.Context(), node, id(1), 10); err == nil || !strings.Contains(err.Error(), "no regular file") {
			t.Errorf("of something else: %v", err)
		}
		r.world.domains[id(1)].XML = strings.Replace(r.world.domains[id(1)].XML, "<log ", "<gone ", 1)
		r.world.domains[id(1)].XML = strings.Replace(r.world.domains[id(1)].XML, "</log>", "</gone>", 1)
		var fault *plugins.InstanceFault
		if _, err := r.ConsoleLog(t.Context(), node, id(1), 10); !errors.As(err, &fault) {
			t.Errorf("of a domain without a log: %v", err)
		}
	})
}
