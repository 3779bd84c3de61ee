// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// openstack is the command line of OpenStack with arguments to authenticate.
type openstack struct {
	t    *testing.T
	auth []string
}

// newOpenstack looks for the command, and that it knows Placement. It is slow to start (about a
// second), so stories are short.
func newOpenstack(t *testing.T, auth ...string) *openstack {
	t.Helper()
	_, err := exec.LookPath("openstack")
	if err == nil {
		err = exec.Command("/usr/bin/python3", "-c", "import osc_placement").Run()
	}
	if err != nil {
		testproc.NotRun(t, "Debian's packages python3-openstackclient and python3-osc-placement are not installed (tools/packages.sh test)")
	}
	return &openstack{t: t, auth: auth}
}

func (o *openstack) command(words []string) *exec.Cmd {
	cmd := exec.CommandContext(o.t.Context(), "openstack", append(append([]string{}, o.auth...), words...)...)
	for _, variable := range os.Environ() { // the environment of the tests does not count
		if !strings.HasPrefix(variable, "OS_") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	cmd.Dir = o.t.TempDir()
	return cmd
}

// do runs a command, and reads its JSON into out unless that is nil.
func (o *openstack) do(out any, words ...string) {
	o.t.Helper()
	if out != nil {
		words = append(words, "--format", "json")
	}
	var stderr bytes.Buffer
	cmd := o.command(words)
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("openstack %s: %v\n%s", strings.Join(words, " "), err, stderr.Bytes())
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal(stdout, out); err != nil {
		o.t.Fatalf("openstack %s printed %q: %v", strings.Join(words, " "), stdout, err)
	}
}

// all runs commands in one process, as if they were typed, and returns what is printed. Whether
// they succeed is for the caller to find out.
func (o *openstack) all(commands ...string) string {
	o.t.Helper()
	alone := &openstack{t: o.t} // arguments would be commands, too: all else is in the environment
	cmd := alone.command(nil)
	for i := 0; i+1 < len(o.auth); i += 2 {
		name := strings.ReplaceAll(strings.TrimPrefix(o.auth[i], "--"), "-", "_")
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+o.auth[i+1])
	}
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	said, err := cmd.CombinedOutput()
	if err != nil {
		o.t.Logf("openstack ended with %v", err) // so does it after a command that was refused
	}
	return string(said)
}

// refused runs a command that must fail, and returns what it says.
func (o *openstack) refused(words ...string) string {
	o.t.Helper()
	said, err := o.command(words).CombinedOutput()
	if err == nil {
		o.t.Errorf("openstack %s was not refused", strings.Join(words, " "))
	}
	return string(said)
}
