// SPDX-License-Identifier: Apache-2.0

package host

import (
	"maps"
	"slices"
	"strings"
)

// Variables of the agent's own environment that plugins may see. Everything else stays here: secrets, and NOTIFY_SOCKET,
// with which a plugin could speak to systemd for the agent.
var (
	allowedEnv         = []string{"PATH", "LANG", "LC_ALL", "TZ", "HOME", "XDG_RUNTIME_DIR"}
	allowedEnvPrefixes = []string{"LIBVIRT_"}
)

// environment is what a plugin process gets: the allowed part of ours, what is configured, and what the connection needs.
// Later ones win.
func environment(ours []string, configured map[string]string, connection ...string) []string {
	var out []string
	for _, entry := range ours {
		key, _, ok := strings.Cut(entry, "=")
		if !ok {
			continue
		}
		allowed := slices.Contains(allowedEnv, key) ||
			slices.ContainsFunc(allowedEnvPrefixes, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
		if _, replaced := configured[key]; allowed && !replaced {
			out = append(out, entry)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(configured)) {
		out = append(out, key+"="+configured[key])
	}
	return append(out, connection...)
}
