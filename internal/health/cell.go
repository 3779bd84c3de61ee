// SPDX-License-Identifier: Apache-2.0

package health

import "github.com/compute-agent/compute-agent/cells/worker"

// Cell is the state of this host's cell, as the agent sees it.
type Cell struct {
	URL string `json:"url"`
	worker.Status
}
