// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"path/filepath"
	"time"
)

// Validate checks what no key can tell alone. Load has called it already; call
// it again after changing a Config by hand. Its error is a Problems.
func (c *Config) Validate() error {
	v := &validator{cfg: c}
	v.client()
	v.order("tracker.retry_backoff_min", c.Tracker.RetryBackoffMin, "tracker.retry_backoff_max", c.Tracker.RetryBackoffMax)
	v.order("plugins.backoff_min", c.Plugins.BackoffMin, "plugins.backoff_max", c.Plugins.BackoffMax)
	v.order("plugins.health_timeout", c.Plugins.HealthTimeout, "plugins.health_interval", c.Plugins.HealthInterval)
	v.order("placement_client.connect_timeout", c.PlacementClient.ConnectTimeout, "placement_client.timeout", c.PlacementClient.Timeout)
	v.sockets()
	if len(c.CORS.AllowHeaders) > 0 && len(c.CORS.AllowedOrigin) == 0 {
		v.bad("cors.allow_headers", "has no effect while cors.allowed_origin is empty", "set allowed_origin, or remove allow_headers")
	}
	return v.problems.err()
}

type validator struct {
	cfg      *Config
	problems Problems
}

func (v *validator) bad(key, what, remedy string) {
	v.problems = append(v.problems, faultf(remedy, "%s", what).at(key, v.cfg.sources[key].orDefault("")))
}

func (v *validator) client() {
	p := v.cfg.PlacementClient
	switch {
	case p.Auth == AuthToken && p.TokenFile == "":
		v.bad("placement_client.auth", "is \"token\", but placement_client.token_file is empty", "set token_file to the file that holds the token")
	case p.Auth == AuthNoauth && p.TokenFile != "":
		v.bad("placement_client.token_file", "is set, but placement_client.auth is \"noauth\": the token would never be sent", "set auth = \"token\", or remove token_file")
	}
	switch {
	case p.CertFile != "" && p.KeyFile == "":
		v.bad("placement_client.cert_file", "is set without placement_client.key_file", "set key_file to the file of the certificate's key")
	case p.CertFile == "" && p.KeyFile != "":
		v.bad("placement_client.key_file", "is set without placement_client.cert_file", "set cert_file to the file of the key's certificate")
	}
}

// order reports a lower bound that lies above its upper bound, at whichever of
// the two was written.
func (v *validator) order(lower string, low time.Duration, upper string, high time.Duration) {
	if low <= high {
		return
	}
	at := lower
	if _, written := v.cfg.sources[lower]; !written {
		at = upper
	}
	v.bad(at, fmt.Sprintf("%s (%s) is longer than %s (%s)", lower, formatDuration(low), upper, formatDuration(high)), "make "+lower+" the shorter one")
}

// sockets reports a runtime directory whose sockets would not fit.
func (v *validator) sockets() {
	dir := v.cfg.Agent.RuntimeDir
	if dir == "" {
		return // Load has said why.
	}
	longest := filepath.Join(dir, longestSocket)
	if len(longest) <= maxSocketPath {
		return
	}
	v.bad("agent.runtime_dir",
		fmt.Sprintf("%s is %d bytes long; the sockets below it would be %d, and Linux allows %d for the path of a socket", dir, len(dir), len(longest), maxSocketPath),
		fmt.Sprintf("choose a directory of at most %d bytes, such as /run/compute-agent", maxSocketPath-len(longestSocket)-1))
}
