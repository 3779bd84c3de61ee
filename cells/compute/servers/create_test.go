// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// image is the id of one.
const image = "70a599e0-31e7-49b7-b260-868f441e862b"

// TestCreateByMicroversion: what may be sent to POST /servers from which microversion to which.
func TestCreateByMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const always, never = api.MaxVersion + 1, api.MaxVersion + 2
	for _, tt := range []struct {
		name, more   string // members beside name and flavorRef
		since, until api.Version
		also         [2]api.Version // from and to, before since
		networks     bool           // "none" is added from 2.37 on
	}{
		{name: "nothing else", since: 1, until: 36},
		{name: "no networks, in a word", more: `"networks":"none"`, since: 37, until: always},
		{name: "any networks", more: `"networks":"auto"`, since: 37, until: always},
		{name: "a list of networks", more: `"networks":[{"uuid":"` + image + `"}]`, since: 1, until: always},
		{name: "networks by name", more: `"networks":[{"uuid":"net"}]`, since: 1, until: 36},
		{name: "a tag of a network", more: `"networks":[{"uuid":"` + image + `","tag":"t"}]`, since: 42, until: always,
			also: [2]api.Version{32, 36}},
		{name: "a description", more: `"description":null`, since: 19, until: always, networks: true},
		{name: "a tag of a device", more: `"block_device_mapping_v2":[{"tag":"t"}]`, since: 42, until: always,
			also: [2]api.Version{32, 32}, networks: true},
		{name: "tags", more: `"tags":["a"]`, since: 52, until: always, networks: true},
		{name: "files", more: `"personality":[]`, since: 1, until: 56, networks: true},
		{name: "certificates", more: `"trusted_image_certificates":["a"]`, since: 63, until: always, networks: true},
		{name: "a type of volumes", more: `"block_device_mapping_v2":[{"volume_type":"t"}]`, since: 67,
			until: always, networks: true},
		{name: "a host", more: `"host":"h"`, since: never, networks: true},
		{name: "a host name", more: `"hostname":"h"`, since: never, networks: true},
	} {
		for v := api.MinVersion; v <= api.MaxVersion; v++ {
			members := `"name":"n","flavorRef":"1"`
			if tt.more != "" {
				members += "," + tt.more
			}
			if tt.networks && v >= vNetworksRequired {
				members += `,"networks":"none"`
			}
			value := testproc.Try(jsonkit.Decode([]byte(`{"server":{` + members + `}}`))).Or(t)
			want := v >= tt.since && v <= tt.until || v >= tt.also[0] && v <= tt.also[1]
			if err := jsonkit.Validate(createSchemas.At(v), value); (err == nil) != want {
				t.Errorf("%s at %s: %v", tt.name, v, err)
			}
		}
	}
}

// BenchmarkCheckCreate reads and checks the body of a boot.
func BenchmarkCheckCreate(b *testing.B) {
	body := []byte(`{"server":{"name":"n1","imageRef":"` +
		image + `","flavorRef":"1","networks":"none","metadata":{"a":"b","c":"d"},"tags":["x","y"],"min_count":1,` +
		`"max_count":2}}`)
	schema := createSchemas.At(api.MaxVersion)
	b.ReportAllocs()
	for b.Loop() {
		value := testproc.Try(jsonkit.Decode(body)).Or(b)
		testproc.Check(b, jsonkit.Validate(schema, value))
	}
}

// TestHostNames of servers are made as Nova makes them.
func TestHostNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]string{
		"web1": "web1", "Web 1": "web-1", "a_b.c": "a-b-c", "é1": "é1", "日本": "", "-.x.-": "x", "a/b!c": "abc",
		strings.Repeat("x", 70): strings.Repeat("x", 63), strings.Repeat("日", 70) + "y": "y", "..": "",
	} {
		testproc.Equal(t, hostName(name), want, "%q: %q", name)
	}
}
