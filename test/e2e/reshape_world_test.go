// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// world is a Placement with data of other clients, and a host on which tests start and end agents.
type world struct {
	*site
	uuids map[string]string // of providers, by name
}

func newWorld(t *testing.T, url string) *world {
	t.Helper()
	return &world{site: newSite(t, url), uuids: map[string]string{}}
}

// openPlacement opens the bundled Placement in this process.
func openPlacement(t *testing.T, state string) *placement.Server {
	t.Helper()
	server, err := placement.New(t.Context(),
		placement.Config{StateDir: state, Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	check(t, err)
	return server
}

// placements are the services that scenarios run against, each with a way to begin with an empty
// one.
func placements(t *testing.T) map[string]func(*testing.T) string {
	upstream := testproc.StartPlacement(t)
	return map[string]func(*testing.T) string{
		"ours": func(t *testing.T) string {
			server := openPlacement(t, t.TempDir())
			front := httptest.NewServer(server.Handler())
			t.Cleanup(func() {
				front.Close()
				check(t, server.Close())
			})
			return front.URL
		},
		"openstack": func(t *testing.T) string {
			check(t, upstream.Reset(t.Context()))
			return upstream.URL
		},
	}
}

// turn says whether the n-th of several stories runs on a kind of Placement: outside of make
// nightly, on the one or on the other.
func turn(kind string, n int) bool {
	return testproc.Nightly() || (kind == "openstack") == (n%2 == 0)
}

// hastyAgent is the configuration of an agent that keeps everything below a directory, tries again
// at once, and makes no pass by itself.
func hastyAgent(dir, placement string) string {
	return fmt.Sprintf(`
[agent]
host = "cn1"
state_dir = %q
runtime_dir = %q
[placement_client]
url = %q
retries = 0
[tracker]
update_resources_interval = "1h"
retry_backoff_min = "10ms"
retry_backoff_max = "50ms"
[plugins]
dir = %q
backoff_min = "50ms"
[log]
format = "json"
level = "debug"
`, filepath.Join(dir, "state"), filepath.Join(dir, "run"), placement, binaries.Dir())
}

// write writes the agent's configuration: driver is what stands in the table of the fake driver,
// more are other tables.
func (w *world) write(driver, more string) {
	w.t.Helper()
	check(w.t, os.WriteFile(w.config,
		[]byte(hastyAgent(w.dir, w.url)+fmt.Sprintf("%s\n[drivers.fake.config]\n%s\n", more, driver)), 0o600))
}

// passDone is what an agent says, at log level debug, when Placement says what the driver says.
const passDone = "Finished the pass."

// settle runs the agent until Placement says what the driver says, and ends it. It returns how many
// writes that took.
func (w *world) settle() int64 {
	w.t.Helper()
	agent := w.run()
	agent.awaitAny(passDone)
	writes := w.status().Placement.Writes
	agent.stop()
	return writes
}

// observer is the header that tells the test's own requests from the agent's.
const observer = "X-Observer"

// call is a request of another client: an administrator, a scheduler.
func (w *world) call(method, path string, body, answer any) int {
	w.t.Helper()
	return call(w.t, method, w.url+path, body, answer)
}

func call(t *testing.T, method, url string, body, answer any) int {
	t.Helper()
	r := testproc.Send(t, nil, method, url, "placement 1.38", body, observer, "test")
	if r.Code >= 400 {
		t.Log(r)
	} else {
		r.Into(t, answer)
	}
	return r.Code
}

// must is call for what has to succeed.
func (w *world) must(method, path string, body, answer any) {
	w.t.Helper()
	if status := w.call(method, path, body, answer); status >= 300 {
		w.t.Fatalf("%s %s: %d", method, path, status)
	}
}

// others puts into Placement what is not the agent's: another host, and storage that it and ours
// share.
func (w *world) others() {
	w.t.Helper()
	const aggregate = "a99a99a9-0000-0000-0000-000000000000"
	for _, p := range []struct {
		name, uuid string
		inventory  map[string]int64
		traits     []string
	}{
		{"cn2", "22222222-0000-0000-0000-000000000000",
			map[string]int64{"VCPU": 16, "VGPU": 4, "MEMORY_MB": 4096}, []string{}},
		{"nfs", "33333333-0000-0000-0000-000000000000",
			map[string]int64{"DISK_GB": 1000}, []string{"MISC_SHARES_VIA_AGGREGATE"}},
	} {
		w.must("POST", "/resource_providers", map[string]any{"name": p.name, "uuid": p.uuid}, nil)
		inventories := map[string]any{}
		for class, n := range p.inventory {
			inventories[class] = map[string]any{"total": n}
		}
		w.must("PUT", "/resource_providers/"+p.uuid+"/inventories",
			map[string]any{"resource_provider_generation": 0, "inventories": inventories}, nil)
		w.must("PUT", "/resource_providers/"+p.uuid+"/traits",
			map[string]any{"resource_provider_generation": 1, "traits": p.traits}, nil)
	}
	w.look()
	for _, name := range []string{"cn1", "nfs"} {
		var provider struct{ Generation int64 }
		w.must("GET", "/resource_providers/"+w.uuids[name], nil, &provider)
		w.must("PUT", "/resource_providers/"+w.uuids[name]+"/aggregates",
			map[string]any{"resource_provider_generation": provider.Generation, "aggregates": []string{aggregate}}, nil)
	}
}

// holding is what consumers hold: by consumer, provider (by name) and resource class.
type holding map[string]map[string]map[string]int64

// claim allocates, as a scheduler does. A consumer called migration is one.
func (w *world) claim(claims holding) {
	w.t.Helper()
	w.look()
	for consumer, resources := range claims {
		allocations := map[string]any{}
		for provider, amounts := range resources {
			allocations[w.uuids[provider]] = map[string]any{"resources": amounts}
		}
		kind := "INSTANCE"
		if consumer == migration {
			kind = "MIGRATION"
		}
		w.must("PUT", "/allocations/"+consumer, map[string]any{
			"allocations": allocations, "project_id": "project-" + consumer[:2], "user_id": "user-" + consumer[:2],
			"consumer_generation": nil, "consumer_type": kind,
		}, nil)
	}
}

// picture is all that Placement has.
type picture struct {
	// Inventories, traits, aggregates are by provider's name.
	Inventories map[string]map[string]inventory
	Traits      map[string][]string
	Aggregates  map[string][]string
	Parents     map[string]string
	Holding     holding
	Owners      map[string]string // by consumer: project, user and type
	// Generations are those of providers by name, and of consumers.
	Generations map[string]int64
}

type inventory struct {
	Total    int64   `json:"total"`
	Reserved int64   `json:"reserved"`
	MinUnit  int64   `json:"min_unit"`
	MaxUnit  int64   `json:"max_unit"`
	StepSize int64   `json:"step_size"`
	Ratio    float64 `json:"allocation_ratio"`
}

// look reads all of Placement.
func (w *world) look() picture {
	w.t.Helper()
	p := picture{
		Inventories: map[string]map[string]inventory{},
		Traits:      map[string][]string{}, Aggregates: map[string][]string{}, Parents: map[string]string{},
		Holding: holding{}, Owners: map[string]string{}, Generations: map[string]int64{},
	}
	var list struct {
		Providers []struct {
			UUID, Name string
			Generation int64
			Parent     string `json:"parent_provider_uuid"`
		} `json:"resource_providers"`
	}
	w.must("GET", "/resource_providers", nil, &list)
	names := map[string]string{}
	for _, rp := range list.Providers {
		names[rp.UUID], w.uuids[rp.Name] = rp.Name, rp.UUID
	}
	consumers := map[string]bool{}
	for _, rp := range list.Providers {
		var inventories struct{ Inventories map[string]inventory }
		var traits struct{ Traits []string }
		var aggregates struct{ Aggregates []string }
		var allocations struct{ Allocations map[string]any }
		at := "/resource_providers/" + rp.UUID
		w.must("GET", at+"/inventories", nil, &inventories)
		w.must("GET", at+"/traits", nil, &traits)
		w.must("GET", at+"/aggregates", nil, &aggregates)
		w.must("GET", at+"/allocations", nil, &allocations)
		slices.Sort(traits.Traits)
		p.Inventories[rp.Name], p.Traits[rp.Name], p.Aggregates[rp.Name] = inventories.Inventories,
			traits.Traits, aggregates.Aggregates
		p.Parents[rp.Name], p.Generations[rp.Name] = names[rp.Parent], rp.Generation
		for consumer := range allocations.Allocations {
			consumers[consumer] = true
		}
	}
	for consumer := range consumers {
		var got struct {
			Allocations map[string]struct{ Resources map[string]int64 }
			Project     string `json:"project_id"`
			User        string `json:"user_id"`
			Type        string `json:"consumer_type"`
			Generation  int64  `json:"consumer_generation"`
		}
		w.must("GET", "/allocations/"+consumer, nil, &got)
		p.Holding[consumer] = map[string]map[string]int64{}
		for provider, a := range got.Allocations {
			p.Holding[consumer][names[provider]] = a.Resources
		}
		p.Owners[consumer] = got.Project + " " + got.User + " " + got.Type
		p.Generations[consumer] = got.Generation
	}
	return p
}

// timeless is the picture without generations.
func (p picture) timeless() picture {
	p.Generations = nil
	return p
}

// sums adds up what each consumer holds, over all providers and with classes by their present
// names.
func (h holding) sums(renames map[string]string) map[string]map[string]int64 {
	out := map[string]map[string]int64{}
	for consumer, resources := range h {
		out[consumer] = map[string]int64{}
		for _, amounts := range resources {
			for class, n := range amounts {
				if to, renamed := renames[class]; renamed {
					class = to
				}
				out[consumer][class] += n
			}
		}
	}
	return out
}
