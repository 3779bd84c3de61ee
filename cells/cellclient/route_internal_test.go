// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRoute: the paths of calls have the routes of the cell's table, whatever hosts are called.
func TestRoute(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const uuid = "11111111-0000-4000-8000-000000000001"
	for path, want := range map[string]string{
		"/v1/cell":                                 "/v1/cell",
		"/v1/servers/query":                        "/v1/servers/query",
		"/v1/servers/unfinished?after=1":           "/v1/servers/unfinished",
		"/v1/servers/" + uuid:                      "/v1/servers/{uuid}",
		"/v1/servers/" + uuid + "/release":         "/v1/servers/{uuid}/release",
		"/v1/migrations/due":                       "/v1/migrations/due",
		"/v1/migrations/" + uuid:                   "/v1/migrations/{uuid}",
		"/v1/compute-nodes/mapped":                 "/v1/compute-nodes/mapped",
		"/v1/hosts/work/work?wait=1":               "/v1/hosts/{host}/work",
		"/v1/hosts/hosts/reports":                  "/v1/hosts/{host}/reports",
		"/v1/hosts/cn1.example.org/streams/a-name": "/v1/hosts/{host}/streams/{id}",
		"/v1/hosts/cn1/nodes/" + uuid:              "/v1/hosts/{host}/nodes/{node}",
		"/v1/hosts/cn1/arrivals/" + uuid:           "/v1/hosts/{host}/arrivals/{uuid}",
	} {
		testproc.Equal(t, route(path), want, "%s is %s", path)
	}
}
