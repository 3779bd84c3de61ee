// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// withFlavors gives a cloud the flavors of the recordings.
func (c *cloud) withFlavors() {
	c.t.Helper()
	for _, f := range []apidb.Flavor{
		{Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}},
			IsPublic: true, RxTxFactor: 1},
		{
			Flavor: cellwire.Flavor{
				ID: "2", Flavor: plugins.Flavor{
					Name: "m1.small", VCPUs: 1, MemoryMB: 2048, RootGB: 20, EphemeralGB: 5, SwapMB: 512,
					ExtraSpecs: map[string]string{"hw:cpu_policy": "shared", "trait:CUSTOM_A": "required"},
				},
			},
			IsPublic: true, RxTxFactor: 1, Description: new("a small one"),
		},
		{Flavor: cellwire.Flavor{ID: "8b1a", Flavor: plugins.Flavor{Name: "m1.private", VCPUs: 2, MemoryMB: 4096}},
			RxTxFactor: 1},
	} {
		testproc.Check(c.t, c.store.CreateFlavor(context.Background(), f))
	}
}

// TestFlavorsAsInNova reads and changes flavors as the recordings do. In Nova the project p1 has
// access to the private flavor; here there are no such lists, so it is taken out of what was shown
// because of that.
func TestFlavorsAsInNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withFlavors()
	calls := recordedCalls(t, "nova_flavors.json")
	onlyPrivate := map[string]bool{} // lists whose private flavor is there for its access
	for _, asked := range calls {
		// Administrators see it as such with is_public=None or false.
		if strings.Contains(asked.Request, "is_public=") && asked.Who == administrator {
			onlyPrivate[asked.Name] = strings.Contains(asked.Request, "is_public=true")
		} else {
			onlyPrivate[asked.Name] = true
		}
	}
	c.replay(calls, map[string]ours{
		"show-private-member-p1": {why: "no project has access to a private flavor", status: 404,
			says: "itemNotFound: Flavor 8b1a could not be found."},
		"access-get": {
			why: "there is no access", status: 404,
			says: "itemNotFound: This service does not support os-flavor-access; docs/cells.md lists the calls " +
				"that it has.",
		},
	}, func(name string, body any) any {
		answer, _ := body.(map[string]any)
		if list, has := answer["flavors"].([]any); has && onlyPrivate[name] {
			kept := []any{}
			for _, f := range list {
				if f.(map[string]any)["id"] != "8b1a" {
					kept = append(kept, f)
				}
			}
			answer["flavors"] = kept
		}
		if f, has := answer["flavor"].(map[string]any); has && len(f["id"].(string)) == 36 { // its id was made
			delete(f, "links")
			f["id"] = "a UUID"
		}
		return body
	})
}

// ids are the flavors of a list.
func (r reply) ids() []string {
	ids := []string{}
	for _, f := range r.body["flavors"].([]any) {
		ids = append(ids, f.(map[string]any)["id"].(string))
	}
	return ids
}

// TestFlavorLists: who sees which, in which order, a page at a time.
func TestFlavorLists(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{MaxLimit: 3})
	c.withFlavors()
	for _, f := range []apidb.Flavor{
		{Flavor: cellwire.Flavor{ID: "off", Flavor: plugins.Flavor{Name: "a.disabled", VCPUs: 8, MemoryMB: 1}},
			IsPublic: true, Disabled: true},
	} {
		testproc.Check(t, c.store.CreateFlavor(t.Context(), f))
	}
	for _, tt := range []struct {
		who, query string
		ids        []string
		next       string
	}{
		{member, "", []string{"1", "2"}, ""},
		{administrator, "", []string{"1", "2", "off"}, "/v2.1/flavors?marker=off"},
		{administrator, "?is_public=none", []string{"1", "2", "8b1a"}, "/v2.1/flavors?is_public=none&marker=8b1a"},
		{administrator, "?is_public=none&marker=8b1a", []string{"off"}, ""},
		{administrator, "?is_public=0", []string{"8b1a"}, ""},
		{member, "?is_public=0", []string{"1", "2"}, ""},
		{member, "?limit=1", []string{"1"}, "/v2.1/flavors?limit=1&marker=1"},
		{member, "?limit=1&marker=1", []string{"2"}, "/v2.1/flavors?limit=1&marker=2"},
		{member, "?limit=1&marker=2", []string{}, ""},
		{member, "?limit=99999999999999999999", []string{"1", "2"}, ""},
		{member, "?limit=0", []string{}, ""},
		{member, "?sort_dir=desc", []string{"2", "1"}, ""},
		{administrator, "?sort_key=name", []string{"off", "2", "1"}, "/v2.1/flavors?sort_key=name&marker=1"},
		{administrator, "?sort_key=vcpus", []string{"1", "2", "off"}, "/v2.1/flavors?sort_key=vcpus&marker=off"},
		{administrator, "?sort_key=memory_mb&sort_dir=desc", []string{"2", "1", "off"},
			"/v2.1/flavors?sort_dir=desc&sort_key=memory_mb&marker=off"},
		{administrator, "?sort_key=created_at", []string{"1", "2", "off"},
			"/v2.1/flavors?sort_key=created_at&marker=off"},
		{administrator, "?sort_key=disabled&sort_dir=desc&limit=1", []string{"off"},
			"/v2.1/flavors?limit=1&sort_dir=desc&sort_key=disabled&marker=off"},
		{member, "?minRam=513", []string{"2"}, ""},
		{member, "?minDisk=21", []string{}, ""},
		{member, "?minRam=-5&minDisk=20", []string{"2"}, ""},
	} {
		got := c.ask(tt.who, "2.69", "/v2.1/flavors"+tt.query)
		if got.status != 200 {
			t.Errorf("%s %s: %d %s", tt.who, tt.query, got.status, got.text)
			continue
		}
		next := ""
		if links, has := got.body["flavors_links"].([]any); has {
			next = strings.TrimPrefix(links[0].(map[string]any)["href"].(string), "http://compute")
		}
		if diff := gocmp.Diff(tt.ids, got.ids()); diff != "" || next != tt.next {
			t.Errorf("%s %s: the next is %q, not %q\n%s", tt.who, tt.query, next, tt.next, diff)
		}
	}
	// A flavor that the user cannot see is not a marker.
	if got := c.ask(member, "2.69",
		"/v2.1/flavors?marker=8b1a"); got.message() != "badRequest: marker [8b1a] not found" {
		t.Errorf("the marker of a hidden flavor: got %d %s, want 400", got.status, got.text)
	}
}

// TestExtraSpecs are added, set, shown and deleted one by one; numbers are kept as text.
func TestExtraSpecs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withFlavors()
	const specs = "/v2.1/flavors/1/os-extra_specs"
	for _, tt := range []struct {
		who, method, path, body string
		status                  int
		answer                  string // or the refusal
	}{
		{administrator, "GET", specs, "", 200, `{"extra_specs":{}}`},
		{administrator, "POST", specs, `{"extra_specs":{"resources:VCPU":2,"my:a":"b","my:f":1.50}}`, 200,
			`{"extra_specs":{"resources:VCPU":2,"my:a":"b","my:f":1.50}}`},
		{member, "GET", specs, "", 200, `{"extra_specs":{"my:a":"b","my:f":"1.5","resources:VCPU":"2"}}`},
		{administrator, "PUT", specs + "/my:a", `{"my:a":"c"}`, 200, `{"my:a":"c"}`},
		{administrator, "PUT", specs + "/my:new", `{"my:new":"x"}`, 200, `{"my:new":"x"}`},
		{reader, "GET", specs + "/my:a", "", 200, `{"my:a":"c"}`},
		{administrator, "DELETE", specs + "/my:f", "", 200, ``},
		{administrator, "GET", specs, "", 200, `{"extra_specs":{"my:a":"c","my:new":"x","resources:VCPU":"2"}}`},

		// What no server would have, and then nothing of the request is set.
		{administrator, "POST", specs, `{"extra_specs":{"my:b":"c","hw:sound_model":"ich9"}}`, 400,
			"badRequest: The extra spec hw:sound_model=ich9 of the flavor is not supported here: servers " +
				"have no sound."},
		{administrator, "POST", specs, `{"extra_specs":{"my:b":"c","hw:watchdog_action":"bark"}}`, 400,
			"badRequest: The extra spec hw:watchdog_action=bark of the flavor is invalid: it must be none, pause, " +
				"poweroff, reset or disabled."},
		{administrator, "PUT", specs + "/ssd", `{"ssd":"true"}`, 400,
			"badRequest: The extra spec ssd=true of the flavor is not supported here: Nova chooses hosts by it, " +
				"which is not done here; choose them with trait:NAME."},
		{administrator, "GET", specs, "", 200, `{"extra_specs":{"my:a":"c","my:new":"x","resources:VCPU":"2"}}`},

		{administrator, "DELETE", specs + "/f", "", 404, "itemNotFound: Flavor 1 has no extra specs with key f."},
		{administrator, "GET", "/v2.1/flavors/nope/os-extra_specs", "", 404,
			"itemNotFound: Flavor nope could not be found."},
		{administrator, "POST", "/v2.1/flavors/nope/os-extra_specs", `{"extra_specs":{}}`, 404,
			"itemNotFound: Flavor nope could not be found."},
		{administrator, "PUT", specs + "/a", `{"b":"c"}`, 400, "badRequest: Request body and URI mismatch"},
		{administrator, "PUT", specs + "/a", `{}`, 400, "badRequest: {} does not have enough properties"},
		{administrator, "PUT", specs + "/a", `{"a":"b","c":"d"}`, 400,
			"badRequest: {'a': 'b', 'c': 'd'} has too many properties"},
		{administrator, "POST", specs, `{"extra_specs":{"a/b":"c"}}`, 400,
			"badRequest: Invalid input for field/attribute extra_specs. Value: {'a/b': 'c'}. 'a/b' does not match " +
				"any of the regexes: '^[a-zA-Z0-9-_:. ]{1,255}$'"},
		{administrator, "POST", specs, `{"extra_specs":{"a":null}}`, 400,
			"badRequest: Invalid input for field/attribute a. Value: None. None is not of type 'string', 'number'"},
		{administrator, "POST", specs, `{}`, 400, "badRequest: 'extra_specs' is a required property"},
		{administrator, "POST", specs, `{"extra_specs":{"a":` + strings.Repeat("1", 256) + `}}`, 400,
			"badRequest: extra_specs value has 256 characters, more than 255."},
		{member, "POST", specs, `{"extra_specs":{"a":"b"}}`, 403,
			"forbidden: Policy doesn't allow os_compute_api:os-flavor-extra-specs:create to be performed."},
		{member, "PUT", specs + "/a", `{"a":"b"}`, 403,
			"forbidden: Policy doesn't allow os_compute_api:os-flavor-extra-specs:update to be performed."},
		{member, "DELETE", specs + "/a", "", 403,
			"forbidden: Policy doesn't allow os_compute_api:os-flavor-extra-specs:delete to be performed."},
		{member, "GET", "/v2.1/flavors/8b1a/os-extra_specs", "", 404, "itemNotFound: Flavor 8b1a could not be found."},
	} {
		got := c.do(tt.who, "2.69", tt.method, tt.path, tt.body)
		answer := got.message()
		if answer == "" {
			answer = got.text
		}
		if got.status != tt.status || answer != tt.answer {
			t.Errorf("%s %s %s %s: %d %s, not %d %s",
				tt.who, tt.method, tt.path, tt.body, got.status, answer, tt.status, tt.answer)
		}
	}
}

// TestUnreadExtraSpecs: one that only a driver can read is set, and the answer and the log say that
// it chooses no host. A boot with it is logged, once in a while.
func TestUnreadExtraSpecs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const specs, told = "/v2.1/flavors/1/os-extra_specs",
		`299 - "The compute API does not read the extra spec reservation:r1, and chooses no host by it."`
	boot := `{"server":{"name":"n1","imageRef":"` + image + `","flavorRef":"1","networks":"none"}}`
	for name, tt := range map[string]struct {
		prefixes []string
		told     []string
	}{
		"no prefix":      {told: []string{told}},
		"another prefix": {prefixes: []string{"licence:"}, told: []string{told}},
		"its prefix":     {prefixes: []string{"licence:", "reservation:"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, Options{MemberPrefixes: tt.prefixes})
			c.withFlavors()
			c.withCalls()
			for _, call := range [][2]string{{"POST", `{"extra_specs":{"reservation:r1":"true","resources:VGPU":"1"}}`},
				{"PUT", `{"reservation:r1":"true"}`}} {
				path := specs
				if call[0] == "PUT" {
					path += "/reservation:r1"
				}
				got := c.do(administrator, "2.69", call[0], path, call[1])
				testproc.Samef(t, gocmp.Diff(tt.told, got.header.Values("Warning")),
					"%s: %d %s", call[0], got.status, got.text)
			}
			for range 2 {
				if got := c.do(member, "2.69", "POST", "/v2.1/servers", boot); got.status != 202 {
					t.Fatalf("POST /servers: got %d %s, want 202", got.status, got.text)
				}
			}
			for what, n := range map[string]int{"An administrator set an extra spec": 2,
				"A server was requested by a flavor with an extra spec": 1} {
				if tt.told == nil {
					n = 0
				}
				if logged := strings.Count(c.logged.String(), what); logged != n {
					t.Errorf("%q is logged %d times, not %d: %s", what, logged, n, c.logged.String())
				}
			}
		})
	}
}

// TestExtraSpecsAtOnce: of extra specs that are set at the same time none is lost.
func TestExtraSpecsAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	c.withFlavors()
	const specs = "/v2.1/flavors/1/os-extra_specs"
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if got := c.do(administrator, "2.69",
				"POST", specs, fmt.Sprintf(`{"extra_specs":{"my:n%d":"x"}}`, i)); got.status != 200 {
				t.Error(got.status, got.text)
			}
		})
	}
	all.Wait()
	if got := c.ask(administrator, "2.69", specs); strings.Count(got.text, `:"x"`) != 8 {
		t.Errorf("8 were set, and there are %s", got.text)
	}
}
