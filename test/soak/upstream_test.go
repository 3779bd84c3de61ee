// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// exchange is one request, which both services get.
type exchange struct {
	version, method, path, body string
	// ours is the status that only ours gives, where a later fix of Placement's is followed.
	ours int
}

// tell sends a request and returns status and error code.
func tell(t *testing.T, url string, e exchange) (string, int) {
	t.Helper()
	r := testproc.Send(t, nil, e.method, url+e.path, "placement "+e.version, e.body, "X-Roles", "admin,service")
	if r.Code == http.StatusOK {
		var body any
		r.Into(t, &body)
		return "200 " + string(testproc.Try(json.Marshal(body)).Or(t)), r.Code
	}
	var e2 struct{ Errors []struct{ Code string } }
	_ = json.Unmarshal(r.Body, &e2) // a 204 has no body
	code := ""
	if len(e2.Errors) == 1 {
		code = e2.Errors[0].Code
	}
	return fmt.Sprint(r.Code, " ", code), r.Code
}

// TestAnswersAreThoseOfOpenStack sends OpenStack's own Placement and ours the same requests about
// generations, reshapes and over-commit, and compares statuses, error codes and reads, step by
// step.
func TestAnswersAreThoseOfOpenStack(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	theirs := testproc.StartPlacement(t).URL
	ours := serve(t, asItIs).url
	const p, q, c1, c2, c3 = "4e8e5957-649f-477b-9e5b-f1f75b21c03c", "5bcff1f0-2ea8-4a55-a9de-2f6cc7b3f3a1",
		"11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002",
		"11111111-0000-4000-8000-000000000003"
	claim := func(version, provider, generation string, vcpu int) string {
		held := "{}"
		if vcpu > 0 {
			held = fmt.Sprintf(`{%q:{"resources":{"VCPU":%d}}}`, provider, vcpu)
		}
		body := `{"allocations":` + held + `,"project_id":"p","user_id":"u"`
		if generation != "" {
			body += `,"consumer_generation":` + generation
		}
		if version == "1.38" {
			body += `,"consumer_type":"INSTANCE"`
		}
		return body + "}"
	}
	put := func(version, consumer, generation string, vcpu int) exchange {
		return exchange{version, "PUT", "/allocations/" + consumer, claim(version, p, generation, vcpu), 0}
	}
	offer := func(provider string, generation int, inventories string) exchange {
		return exchange{"1.38", "PUT", "/resource_providers/" + provider + "/inventories",
			fmt.Sprintf(`{"resource_provider_generation":%d,"inventories":{%s}}`, generation, inventories), 0}
	}
	reshape := func(pGeneration int, pInventories string, qGeneration int, qInventories, allocations string) exchange {
		return exchange{"1.38", "POST", "/reshaper", fmt.Sprintf(
			`{"inventories":{%q:{"resource_provider_generation":%d,"inventories":{%s}},`+
				`%q:{"resource_provider_generation":%d,"inventories":{%s}}},"allocations":{%s}}`,
			p, pGeneration, pInventories, q, qGeneration, qInventories, allocations), 0}
	}
	read := func(path string) exchange { return exchange{"1.38", "GET", path, "", 0} }
	onlyOurs := func(e exchange, status int) exchange { e.ours = status; return e }
	const usages = "/resource_providers/" + p + "/usages"
	const vcpu8, vcpu4, memory = `"VCPU":{"total":8}`, `"VCPU":{"total":4}`, `"MEMORY_MB":{"total":1024}`
	moved := func(generation1, generation2 string, n1, n2 int) string {
		return fmt.Sprintf(`%q:%s,%q:%s`, c1, claim("1.38", q, generation1, n1), c2, claim("1.38", q, generation2, n2))
	}
	story := []exchange{
		{"1.38", "POST", "/resource_providers", `{"name":"p","uuid":"` + p + `"}`, 0},
		{"1.38", "POST", "/resource_providers",
			`{"name":"q","uuid":"` + q + `","parent_provider_uuid":"` + p + `"}`, 0},
		offer(p, 0, vcpu8+","+memory),
		// Generations of consumers.
		put("1.28", c1, "", 1), put("1.28", c1, "0", 1), put("1.28", c1, "1", 1), put("1.28", c1, `"x"`, 1),
		// An empty allocation of an unknown consumer. Theirs keeps a record of that consumer, ours
		// does not; nothing of it is read.
		put("1.28", "11111111-0000-4000-8000-000000000009", "null", 0),
		put("1.28", c1, "null", 1), put("1.28", c1, "null", 1), put("1.28", c1, "0", 1),
		put("1.28", c1, "2", 1), put("1.28", c1, "-1", 1),
		put("1.28", c1, "1", 2), put("1.27", c1, "", 1),
		put("1.8", c1, "", 0), put("1.27", c1, "", 0), put("1.38", c1, "3", 2),
		{"1.13", "POST", "/allocations", `{"` + c1 + `":` +
			claim("1.13", p, "", 1) + `,"` + c2 + `":` + claim("1.13", p, "", 1) + `}`, 0},
		{"1.38", "POST", "/allocations", `{"` + c1 + `":` +
			claim("1.38", p, "5", 1) + `,"` + c2 + `":` + claim("1.38", p, "2", 1) + `}`, 0},
		{"1.38", "POST", "/allocations", `{"` + c1 + `":` +
			claim("1.38", p, "5", 4) + `,"` + c2 + `":` + claim("1.38", p, "1", 3) + `}`, 0},
		put("1.38", c3, "null", 1), put("1.38", c3, "0", 0), put("1.38", c3, "1", 0),
		put("1.38", c3, "1", 1), put("1.38", c3, "null", 1),
		{"1.38", "DELETE", "/allocations/" + c3, "", 0}, {"1.38", "DELETE", "/allocations/" + c3, "", 0},
		// Over-commit: 7 of 4 are used.
		offer(p, 10, vcpu4+","+memory), offer(p, 9, vcpu4+","+memory), offer(p, 11, vcpu4+","+memory),
		offer(p, 12, vcpu4+","+memory),
	}
	// A client that writes knows the generations: ask ours, theirs must be the same.
	var at struct {
		Generation int `json:"resource_provider_generation"`
	}
	answers := map[string]int{}
	run := func(list ...exchange) {
		t.Helper()
		reads := []string{
			"/allocations/" + c1, "/allocations/" + c2,
			"/allocations/" + c3, "/resource_providers/" + q + "/allocations",
			"/resource_providers/" + q + "/inventories", "/resource_providers/" + p + "/inventories", usages,
		}
		for n, e := range list {
			want, _ := tell(t, theirs, e)
			got, status := tell(t, ours, e)
			answers[fmt.Sprint(e.method, " ", e.path[:min(len(e.path), len("/allocations"))], " ", status)]++
			if e.ours != 0 {
				if status != e.ours || got == want {
					t.Errorf("step %d, %+v: ours answers %s, theirs %s, and ours should be %d", n, e, got, want, e.ours)
				}
				return // the stories part here
			}
			if got != want && e.path != "/resource_providers" { // what is made has links with the host in them
				t.Fatalf("step %d, %+v:\nours   %s\ntheirs %s", n, e, got, want)
			}
			for _, path := range reads {
				want, _ := tell(t, theirs, read(path))
				if got, _ := tell(t, ours, read(path)); got != want {
					t.Fatalf("after step %d, %+v, %s:\nours   %s\ntheirs %s", n, e, path, got, want)
				}
			}
		}
		got, _ := tell(t, ours, read(usages))
		check(t, json.Unmarshal([]byte(got[4:]), &at))
	}
	run(story...)
	g := at.Generation
	run(
		put("1.38", c3, "null", 1),
		// Reshapes: each way to be refused, then the move, then again.
		reshape(g-1, memory, 0, vcpu8, moved("6", "2", 4, 3)),
		reshape(g, memory, 1, vcpu8, moved("6", "2", 4, 3)),
		reshape(g, memory, 0, vcpu8, moved("5", "2", 4, 3)),
		reshape(g, memory, 0, vcpu8, moved("6", "null", 4, 3)),
		reshape(g, memory, 0, vcpu8, moved("6", "2", 4, 5)),
		reshape(g, memory, 0, vcpu4, moved("6", "2", 4, 3)),
		reshape(g, memory, 0, vcpu8, fmt.Sprintf(`%q:%s`, c1, claim("1.38", q, "6", 4))),
		reshape(g, memory, 0, vcpu8, fmt.Sprintf(`%q:%s`, c3, claim("1.38", q, "1", 4))),
		reshape(g, memory, 0, `"CUSTOM_X":{"total":1}`, moved("6", "2", 4, 3)),
		exchange{"1.38", "POST",
			"/reshaper",
			fmt.Sprintf(`{"inventories":{%q:{"resource_provider_generation":0,"inventories":{}}},"allocations":{}}`,
				c1), 0},
		exchange{"1.38", "POST", "/reshaper", `{"inventories":{},"allocations":{}}`, 0},
		reshape(g, memory, 0, vcpu8, moved("6", "2", 4, 3)),
		reshape(g, memory, 0, vcpu8, moved("6", "2", 4, 3)),
		reshape(g+2, memory, 3, vcpu8, ""),
		reshape(g+4, "", 5, vcpu8, fmt.Sprintf(`%q:%s`, c2, claim("1.38", q, "3", 0))),
		offer(q, 8, `"VCPU":{"total":2}`),
	)
	// LP#2104040, fixed after 8.0.0: what does not make an over-commit worse is taken.
	run(onlyOurs(exchange{"1.38", "PUT", "/allocations/" + c1, claim("1.38", q, "7", 3), 0}, http.StatusNoContent))
	// The story is about both ends of each call.
	for _, some := range []string{"PUT /allocations 204",
		"PUT /allocations 409", "PUT /allocations 400", "POST /allocations 204", "POST /allocations 409",
		"POST /reshaper 204", "POST /reshaper 409", "POST /reshaper 400"} {
		if answers[some] == 0 {
			t.Errorf("no %s in %v", some, answers)
		}
	}
}
