// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// fixedParts are the parts of a cell's paths that do not vary.
var fixedParts = partsOf(
	"/v1/cell", "/v1/survey", "/v1/services", "/v1/compute-nodes/mapped", "/v1/compute-nodes/state",
	"/v1/migrations/due", "/v1/migrations/query",
	"/v1/servers/query", "/v1/servers/states", "/v1/servers/unfinished", "/release", "/discard", "/delete", "/restore",
	"/freed", "/power", "/rebuild",
	"/actions", "/stream", "/v1/hosts", "/work", "/reports", "/nodes", "/streams", "/arrivals",
)

func partsOf(paths ...string) map[string]bool {
	parts := map[string]bool{}
	for _, path := range paths {
		for part := range strings.SplitSeq(path, "/") {
			parts[part] = true
		}
	}
	return parts
}

// places are what stands for names, behind these parts.
var places = map[string]string{"hosts": "{host}", "nodes": "{node}", "streams": "{id}"}

// route is the path of a call as a cell has it in its table.
func route(path string) string { return textutil.Route(path, fixedParts, places) }
