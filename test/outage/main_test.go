// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

var (
	binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake")
	check    = testproc.Check
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// deployment is a world, and how it is looked at.
type deployment struct{ *world.World }

func deploy(t *testing.T, p world.Plan) deployment {
	t.Helper()
	p.Binaries = binaries
	return deployment{world.New(t, p)}
}

// withHosts has the host c1h1 in cell1 and c2h1 in cell2. Servers go to the one with more memory.
func withHosts(t *testing.T, p world.Plan, first, second int64) deployment {
	t.Helper()
	w := deploy(t, p)
	w.AddHost("cell1", "c1h1", first)
	w.AddHost("cell2", "c2h1", second)
	w.Discover()
	return w
}

// lists checks which servers the list of a project has, in their order; "?" marks those that are to
// be UNKNOWN.
func (d deployment) lists(who world.Caller, version string, want ...string) {
	d.T.Helper()
	if diff := cmp.Diff(append([]string{}, want...), d.Listed(d.Get(who, version, "/servers"))); diff != "" {
		d.T.Errorf("the list of %s in %s (-want +got):\n%s", who.Project, version, diff)
	}
}

// eventuallyLists is lists of what needs a moment.
func (d deployment) eventuallyLists(who world.Caller, want ...string) {
	d.T.Helper()
	d.Eventually(fmt.Sprintf("the list of %s is %q", who.Project, want), func() error {
		if diff := cmp.Diff(want, d.Listed(d.Get(who, "2.69", "/servers"))); diff != "" {
			return fmt.Errorf("(-want +got):\n%s", diff)
		}
		return nil
	})
}

// golden compares a body with testdata/NAME.json.
func (d deployment) golden(name string, a *world.Answer) {
	d.T.Helper()
	var body any
	a.Into(d.T, &body)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	check(d.T, encoder.Encode(body))
	text := out.String()
	for _, known := range []struct {
		form *regexp.Regexp
		name string
	}{
		{regexp.MustCompile(`https?://127\.0\.0\.1:[0-9]+`), "<endpoint>"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
		{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}`), "<microseconds>"},
		{regexp.MustCompile(`"hostId": "[0-9a-f]{56}"`), `"hostId": "<host>"`},
		{regexp.MustCompile(`"details": ".*"`), `"details": "<details>"`}, // of a fault, in words for people
		{regexp.MustCompile(world.Image), "<image>"},
	} {
		text = known.form.ReplaceAllString(text, known.name)
	}
	for id, name := range d.Names {
		text = strings.ReplaceAll(text, id, "<"+name+">")
	}
	text = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`).ReplaceAllString(text, "<uuid>")
	golden.Text(d.T, filepath.Join("testdata", name+".json"), text)
}
