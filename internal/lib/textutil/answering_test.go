// SPDX-License-Identifier: Apache-2.0

package textutil_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAnswering: services are known by what they answer to requests that are not for them.
func TestAnswering(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for body, want := range map[string]string{
		`{"versions": [{"id": "v1.0", "max_version": "1.39", "min_version": "1.0"}]}`: "a Placement",
		`{"errors": [{"status": 404, "title": "Not Found", ` +
			`"detail": "The resource could not be found."}]}`: "a Placement",
		`{"versions": [{"id": "v2.1", "version": "2.71", "min_version": "2.1"}]}`:        "a compute API",
		`{"itemNotFound": {"code": 404, "message": "The resource could not be found."}}`: "a compute API",
		`{"versions": {"values": [{"id": "v3.14"}]}}`:                                    "a Keystone",
		`{"error": {"code": 404, "message": "(http://keystone/x): The resource could not be found.", "title": ` +
			`"Not Found"}}`: "a Keystone",
		`{"code": "not_found", "message": "This is a cell of compute-agent, ` +
			`which has no /resource_providers."}`: "a cell of compute-agent",
		`{"message": "not found"}`: "",
		`[]`:                       "",
		`<html>`:                   "",
	} {
		testproc.Equal(t, textutil.Answering(nil, []byte(body)), want, body+": %q")
	}
	for want, header := range map[string]map[string][]string{
		"a Placement":                  {"Openstack-Api-Version": {"placement 1.0"}},
		"a compute API":                {"Openstack-Api-Version": {"compute 2.1"}},
		"another service of OpenStack": {"Www-Authenticate": {`Keystone uri="http://keystone"`}},
	} {
		testproc.Equal(t, textutil.Answering(header, []byte("no")), want, "by its header: %q")
	}
}
