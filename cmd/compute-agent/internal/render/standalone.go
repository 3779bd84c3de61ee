// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// StandaloneTree prints the provider tree of a standalone agent, or why it has none, and commands
// of a program to inspect it: at the URL of Placement, and by the agent's runtime directory.
func StandaloneTree(w io.Writer, tree control.Tree, failure error, url, runtimeDir, program string) error {
	p := newPrinter(w)
	if failure != nil {
		p.row("\nNothing is reported yet: %v\nSee the log above; the agent retries.", failure)
	} else {
		p.row("\nThis machine in Placement:\n")
		if err := Tree(w, tree, TreeOptions{Now: time.Now()}); err != nil {
			return err
		}
		p.row(`
Placement listens at %[1]s. To inspect it:
  %[3]s tree --runtime-dir %[2]s
  curl -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement latest' %[1]s/resource_providers
  openstack --os-auth-type admin_token --os-endpoint %[1]s --os-token admin resource provider list
`, url, runtimeDir, program)
	}
	p.row("The agent keeps Placement up to date. Ctrl-C stops everything except guests.\n")
	return p.err
}

// StandaloneCompute prints commands for the compute API at a URL.
func StandaloneCompute(w io.Writer, url string) error {
	_, err := fmt.Fprintf(w, `The compute API listens at %[1]s. To create a server on this machine, and to list it:
  curl -H 'X-Auth-Token: admin' -H 'Content-Type: application/json' %[1]s/servers -d '{"server": {"name": "first", "flavorRef": "1", "imageRef": ""}}'
  openstack --os-auth-type admin_token --os-endpoint %[1]s --os-token admin --os-compute-api-version 2.69 server list -n

`, url)
	return err
}
