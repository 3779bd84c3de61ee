// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func hostID(n int) string { return fmt.Sprintf("66666666-6666-4666-8666-%012d", n) }

// equalHosts is an API with n hosts of the given number of VCPU each.
func equalHosts(t *testing.T, n int, vcpus int64, change ...func(*api.Config)) *api.API {
	t.Helper()
	l := openLedger(t)
	if _, err := l.Update(t.Context(), func(tx *ledger.Tx) error {
		for i := range n {
			if _, err := tx.CreateProvider(
				ledger.NewProvider{UUID: hostID(i), Name: fmt.Sprint("host", i)}); err != nil {
				return err
			}
			if _, err := tx.SetInventories(hostID(i), 0,
				[]ledger.Inventory{{Class: "VCPU", Total: vcpus, MinUnit: 1, MaxUnit: vcpus, StepSize: 1,
					AllocationRatio: 1}}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return newAPI(t, append(change, func(c *api.Config) { c.Ledger = l })...)
}

// asked are the hosts of the candidates for one VCPU, in order.
func asked(t *testing.T, h http.Handler, query string) (hosts []string) {
	t.Helper()
	var answer struct {
		Requests []struct {
			Allocations map[string]any `json:"allocations"`
		} `json:"allocation_requests"`
	}
	w := call{method: "GET", path: "/allocation_candidates?resources=VCPU:1" + query,
		version: "1.39", status: 200}.do(t, h)
	testproc.Check(t, json.Unmarshal(w.Body.Bytes(), &answer))
	for _, r := range answer.Requests {
		hosts = append(hosts, slices.Sorted(maps.Keys(r.Allocations))...)
	}
	return hosts
}

// TestSuccessiveRequestsBeginAtDifferentHosts: as many requests as there are hosts begin with each
// of them, whatever the limit and the strategy; and what a limit leaves out of one answer is in the
// next ones.
func TestSuccessiveRequestsBeginAtDifferentHosts(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	const hosts = 60
	for name, change := range map[string]func(*api.Config){
		"breadth first":             func(*api.Config) {},
		"depth first":               func(c *api.Config) { c.Options.DepthFirst = true },
		"max_allocation_candidates": func(c *api.Config) { c.Options.MaxCandidates = 1 },
	} {
		h := equalHosts(t, hosts, 1, change)
		for _, query := range []string{"&limit=1", "", "&limit=100"} {
			begun := map[string]bool{}
			for range hosts {
				begun[asked(t, h, query)[0]] = true
			}
			testproc.Equal(t, len(begun), hosts, "%s, %q: %d requests begin with %d hosts", name, query, hosts)
		}
	}
	const many, limit = 10_000, 1000
	h := equalHosts(t, many, 1)
	seen := map[string]bool{}
	for range many / limit {
		for _, host := range asked(t, h, fmt.Sprint("&limit=", limit)) {
			seen[host] = true
		}
	}
	if len(seen) != many {
		t.Errorf("%d requests with a limit of %d reach %d of %d hosts", many/limit, limit, len(seen), many)
	}
}

// TestRandomOrderStays: randomize_allocation_candidates goes before the rotation.
func TestRandomOrderStays(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := equalHosts(t, 50, 1, func(c *api.Config) { c.Options.Randomize = true })
	first, again := asked(t, h, ""), asked(t, h, "")
	if slices.Equal(first, again) || len(first) != 50 ||
		!slices.Equal(slices.Sorted(slices.Values(first)), slices.Sorted(slices.Values(again))) {
		t.Errorf("two random orders are %v and %v", first, again)
	}
}

// TestClientsInStepClaimDifferentHosts: clients that all ask before any of them claims take the
// first candidate, and still get hosts of their own, until few are left.
func TestClientsInStepClaimDifferentHosts(t *testing.T) {
	dbservers.AboutNoDatabase(t)
	testproc.Parallel(t, testproc.Light)
	const hosts = 256
	for _, clients := range []int{1, 4, 16} {
		for _, limit := range []int{1, 10, 100} {
			h := equalHosts(t, hosts, 1)
			claims, conflicts := 0, 0
			for claims < hosts*3/4 {
				var wanted []string
				for range clients {
					wanted = append(wanted, asked(t, h, fmt.Sprint("&limit=", limit))[0])
				}
				for _, host := range wanted {
					body := `{"allocations":{"` + host +
						`":{"resources":{"VCPU":1}}},"project_id":"p","user_id":"u","consumer_type":"INSTANCE",` +
						`"consumer_generation":null}`
					claim := call{method: "PUT", path: fmt.Sprintf("/allocations/77777777-7777-4777-8777-%012d",
						claims+conflicts), version: "1.39", body: body}
					switch w := claim.send(h); w.Code {
					case http.StatusNoContent:
						claims++
					case http.StatusConflict:
						conflicts++
					default:
						t.Fatalf("PUT %s: %d %s", claim.path, w.Code, w.Body)
					}
				}
			}
			if most := claims / 20; conflicts > most {
				t.Errorf("%d clients, limit %d: %d of %d claims are 409, want at most %d",
					clients, limit, conflicts, claims+conflicts, most)
			}
		}
	}
}

// TestConcurrentClientsBeginAtDifferentHosts: the requests of concurrent clients share the counter
// of their query.
func TestConcurrentClientsBeginAtDifferentHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const clients, each = 16, 20
	h := equalHosts(t, clients*each, 1)
	begun := make([][]string, clients)
	var working sync.WaitGroup
	for i := range begun {
		working.Go(func() {
			for range each {
				begun[i] = append(begun[i], asked(t, h, "&limit=1")...)
			}
		})
	}
	working.Wait()
	all := slices.Sorted(slices.Values(slices.Concat(begun...)))
	if distinct := len(slices.Compact(all)); distinct != clients*each {
		t.Errorf("%d requests of %d clients begin at %d hosts", clients*each, clients, distinct)
	}
}
