// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// sdkStory is a program with OpenStack's SDK. Its arguments are a cloud's name and what to do, and
// it prints what it found as JSON.
//
//go:embed testdata/sdk_story.py
var sdkStory []byte

// sdkSeen is what the program found.
type sdkSeen struct {
	Made     string            `json:"made"`     // the server that it made
	Servers  map[string]string `json:"servers"`  // by id: name and status
	Shown    map[string]string `json:"shown"`    // what it received about one of them
	Image    string            `json:"image"`    // of that one
	Services map[string]string `json:"services"` // by host: status and state
}

// TestSDKCompute: a program in Python with both cells up, and then with one of them killed.
func TestSDKCompute(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	newOpenstack(t) // is it there?
	c := newCloud(t)
	one := c.boot("one", "host1")
	dir := t.TempDir()
	clouds, program := filepath.Join(dir, "clouds.yaml"), filepath.Join(dir, "story.py")
	check(t, os.WriteFile(program, sdkStory, 0o600))
	check(t, os.WriteFile(clouds, fmt.Appendf(nil, `clouds:
  ours:
    auth_type: admin_token
    auth: {endpoint: %[1]q, token: "admin:%[2]s"}
    compute_endpoint_override: %[1]q
    compute_default_microversion: %[3]q
`, c.endpoint, project, microversion), 0o600))
	run := func(words ...string) sdkSeen {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "/usr/bin/python3", append([]string{program}, words...)...)
		for _, v := range os.Environ() {
			if !strings.HasPrefix(v, "OS_") {
				cmd.Env = append(cmd.Env, v)
			}
		}
		cmd.Env = append(cmd.Env, "OS_CLIENT_CONFIG_FILE="+clouds)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", words, err, stderr.Bytes())
		}
		var seen sdkSeen
		check(t, json.Unmarshal(out, &seen))
		return seen
	}

	seen := run("make", image)
	want := sdkSeen{
		Made: seen.Made, Servers: map[string]string{one: "one ACTIVE", seen.Made: "made ACTIVE"},
		Shown: map[string]string{"name": "made", "status": "ACTIVE", "project": project}, Image: image,
		Services: map[string]string{"host1": "enabled up", "host2": "enabled up"},
	}
	testproc.Samef(t, cmp.Diff(want, seen), "with all up")
	c.until("the program's server is gone", func() bool { return c.status(seen.Made) == "gone" })

	if empty := run("make", ""); empty.Image != "no-image" || empty.Shown["status"] != "ACTIVE" {
		t.Errorf("a server that was booted from no image: %+v", empty)
	}

	c.kill("cell1")
	want = sdkSeen{
		Servers: map[string]string{one: "None UNKNOWN"},
		Shown:   map[string]string{"name": "None", "status": "UNKNOWN", "project": project}, Image: image,
		Services: map[string]string{"host1": "UNKNOWN None", "host2": "enabled up"},
	}
	testproc.Samef(t, cmp.Diff(want, run("look", one)), "with cell1 down")
}
