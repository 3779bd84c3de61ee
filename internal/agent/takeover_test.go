// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRefusal: a condition sends an operator to the configuration only if the configuration is
// wrong.
func TestRefusal(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const path = "/opt/compute-driver-fake"
	takeover := func(err error) error { return &pluginhost.TakeoverError{Path: path, Err: err} }
	for name, c := range map[string]struct {
		err  error
		code health.Code
		hint string // part of it; "": the definition's
	}{
		"the driver refuses": {&driverclient.CallError{Err: &plugins.ConfigError{Key: "uri", Problem: "is invalid"}},
			health.DriverRefused, ""},
		"a new process refuses": {takeover(&pluginhost.StartError{Path: path, Cause: &plugins.ConfigError{Key: "uri"}}),
			health.DriverRefused, ""},
		"a key that cannot be": {errors.New("drivers.fake.path: leads out"), health.DriverRefused, ""},
		"it hangs": {fmt.Errorf("Configure: %w", driverclient.ErrNoAnswer), health.DriverRefused,
			"keeps the driver from answering"},
		"the file's mode": {takeover(&launch.UntrustedError{Path: path, Hint: "Fix it with: chmod go-w " + path}),
			health.DriverTakeover, "chmod go-w " + path + ", then"},
		"the protocol": {takeover(fmt.Errorf("%w: 9", pluginhost.ErrIncompatible)), health.DriverTakeover,
			"for this version of the agent"},
		"it exits": {takeover(&pluginhost.StartError{Path: path, Cause: errors.New("exit status 1")}),
			health.DriverTakeover, "plugin info " + path},
		"no handshake": {takeover(fmt.Errorf("%w: no handshake", driverclient.ErrNoAnswer)), health.DriverTakeover,
			"restore the previous executable"},
		"no disk space": {fmt.Errorf("%w: no space left", statedir.ErrDriverDir), health.StateNotWritable, ""},
	} {
		got := configurationFinding("fake", c.err)
		if got.Code != c.code || got.Text == "" || (c.hint == "") != (got.Hint == "") ||
			!strings.Contains(got.Hint, c.hint) {
			t.Errorf("%s: %+v", name, got)
		}
		if subject := got.Subject; subject != health.OfDriver("fake") && c.code != health.StateNotWritable {
			t.Errorf("%s: the subject is %s", name, subject)
		}
	}
}
