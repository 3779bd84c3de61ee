// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/host"
)

// refusal is what it means that a driver could not be brought to its new configuration: that it refuses it, or does not answer to it, or that
// the process which was to take over with it cannot.
func refusal(driver string, err error) health.Finding {
	const reload = ", then systemctl reload compute-agent"
	found := health.Finding{Code: health.DriverRefused, Subject: health.OfDriver(driver), Text: err.Error()}
	var refused *plugins.ConfigError
	var takeover *host.TakeoverError
	var untrusted *host.UntrustedError
	switch {
	case errors.As(err, &refused): // by a process that was to take over, too
		return found
	case errors.Is(err, errDriverState):
		found.Code, found.Subject = health.StateNotWritable, health.Agent
		return found
	case !errors.As(err, &takeover):
		if errors.Is(err, host.ErrNoAnswer) {
			found.Remedy = "the agent's log has the driver's output; fix what keeps the driver from answering" + reload
		}
		return found
	}
	found.Code, found.Text = health.DriverTakeover, takeover.Err.Error()
	switch {
	case errors.As(err, &untrusted):
		found.Remedy = untrusted.Remedy + reload
	case errors.Is(err, host.ErrNotInstalled):
		found.Remedy = "install the executable as the text says" + reload
	case errors.Is(err, host.ErrIncompatible):
		found.Remedy = fmt.Sprintf("install a driver for this version of the agent at %s", takeover.Path) + reload
	default:
		found.Remedy = fmt.Sprintf("the text and the log say how the new process failed, and `compute-agent plugin info %s` starts one by itself; fix that, or restore the previous executable", takeover.Path) + reload
	}
	return found
}
