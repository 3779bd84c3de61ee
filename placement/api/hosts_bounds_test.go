// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBoundsOfAHost: a host cannot fill Placement. What it has used up comes back with time, and is
// its own: another host is not affected.
func TestBoundsOfAHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := clock
	h, _ := hostsWorld(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	name := func(i int) call { return call{method: "PUT", path: fmt.Sprintf("/traits/CUSTOM_T%d", i), status: 201} }
	refused := func(c call, as string) {
		t.Helper()
		c.status = 403
		testproc.Contains(t, errorOf(t, c.as(as).do(t, h)).Detail, "more", "%s %s: %s", c.method, c.path)
	}
	for i := range 1000 {
		name(i).as("h1").do(t, h)
	}
	refused(name(1000), "h1")
	name(1001).as("h2").do(t, h)
	now = now.Add(time.Minute)
	name(1000).as("h1").do(t, h)
	refused(name(1002), "h1")

	child := func(i int) call {
		return call{method: "POST", path: "/resource_providers",
			body: fmt.Sprintf(`{"name":"h2_%d","parent_provider_uuid":%q}`, i, root2), status: 200}
	}
	for i := range 1999 {
		child(i).as("h2").do(t, h)
	}
	refused(child(1999), "h2")

	root := func(i int) call {
		return call{method: "POST", path: "/resource_providers", body: fmt.Sprintf(`{"name":"h3.d%d"}`, i), status: 200}
	}
	for i := range 100 {
		root(i).as("h3").do(t, h)
	}
	refused(root(100), "h3")
}

// TestHealingIsBounded: so is the number of consumers that a host gives allocations.
func TestHealingIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, _ := hostsWorld(t, func(c *api.Config) { c.Policy = policyOf(t, api.Legacy, mayHeal) })
	batch := func(from, n int) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = fmt.Sprintf(`"60000000-0000-4000-8000-%012d":%s`,
				from+i, holding(allocated(root1, "VCPU", 1), "null"))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	calls(t, h,
		call{method: "PUT", path: "/resource_providers/" +
			root1 + "/inventories", body: `{"resource_provider_generation":5,"inventories":{"VCPU":{"total":100000}}}`,
			version: "1.39", status: 200},
		call{method: "POST", path: "/allocations", body: batch(0, 5000), status: 204}.as("h1"),
		call{method: "POST", path: "/allocations", body: batch(5000, 1), status: 403}.as("h1"),
		call{method: "POST", path: "/allocations", body: batch(5000, 1), version: "1.39", status: 204},
	)
}

// generations are those of what others than h1 rely on.
type generations struct{ root, shared, consumer int64 }

func generationsOf(t *testing.T, l *transactor.Ledger, consumer string) generations {
	t.Helper()
	s := l.Current()
	root, _ := s.Provider(root2)
	shared, _ := s.Provider(share1)
	c, found := s.Consumer(consumer)
	if !found {
		t.Fatalf("consumer %s is gone", consumer)
	}
	return generations{root.Generation, shared.Generation, c.Generation}
}

// TestAHostMovesNoGenerationOfOthers: a host that writes the same allocations again and again, or
// moves its own part to and fro, changes no generation of another host's providers, so that the
// writes of these, which name it, do not conflict. The consumer changes only when the host's part
// of it does.
func TestAHostMovesNoGenerationOfOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, l := hostsWorld(t)
	before := generationsOf(t, l, onBoth)
	same := allocated(root1, "VCPU", 4, root2, "VCPU", 4, share1, "DISK_GB", 1)
	put := func(allocations string, generation int64, status int) {
		t.Helper()
		call{method: "PUT", path: "/allocations/" + onBoth,
			body: holding(allocations, fmt.Sprint(generation)), status: status}.as("h1").do(t, h)
	}
	for range 5 {
		put(same, before.consumer, 204)
		call{method: "POST", path: "/allocations", body: `{"` + onBoth + `":` +
			holding(same, fmt.Sprint(before.consumer)) + `}`, status: 204}.as("h1").do(t, h)
	}
	put(same, before.consumer+1, 409)
	put(same, before.consumer-1, 409)
	testproc.Equal(t, generationsOf(t, l, onBoth), before, "the same again: %+v, and then %+v", before)
	onChild := strings.ReplaceAll(same, root1, numa1)
	for n := range int64(4) {
		put([]string{onChild, same}[n%2], before.consumer+n, 204)
	}
	before.consumer += 4
	testproc.Equal(t, generationsOf(t, l, onBoth), before, "moved to and fro: %+v")
	call{method: "PUT", path: "/resource_providers/" + root2 + "/inventories", status: 200,
		body: fmt.Sprintf(
			`{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":90},"MEMORY_MB":{"total":100}}}`,
			before.root)}.as("h2").do(t, h)

	// Of a consumer that has nothing on other hosts, too, the sharing provider stays as it is.
	one := generationsOf(t, l, onHost1)
	mine := allocated(root1, "VCPU", 2, numa1, "MEMORY_MB", 64, share1, "DISK_GB", 10)
	call{method: "PUT", path: "/allocations/" + onHost1,
		body: holding(mine, fmt.Sprint(one.consumer)), status: 204}.as("h1").do(t, h)
	testproc.Equal(t, generationsOf(t, l, onHost1), one, "the same with a sharing provider: %+v, and then %+v", one)
	call{method: "PUT", path: "/allocations/" + onHost1,
		body:   holding(strings.Replace(mine, `"DISK_GB":10`, `"DISK_GB":9`, 1), fmt.Sprint(one.consumer)),
		status: 204}.as("h1").do(t, h)
	one.shared, one.consumer = one.shared+1, one.consumer+1
	testproc.Equal(t, generationsOf(t, l, onHost1), one, "less of a sharing provider: %+v")
	// For everybody else it is as in OpenStack's Placement.
	call{method: "PUT", path: "/allocations/" + onBoth,
		version: "1.39", body: holding(same, fmt.Sprint(before.consumer)), status: 204}.do(t, h)
	if now := generationsOf(t, l, onBoth); now.consumer != before.consumer+1 || now.root != before.root+2 {
		t.Errorf("a user wrote the same: %+v, and then %+v", before, now)
	}
}

// TestChangesBesideOthersAreBounded: what a host may do that makes generations grow which others
// rely on, it must not do forever: in a reshape, the providers and the consumer; in other writes,
// the consumer.
func TestChangesBesideOthersAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now := clock
	h, l := hostsWorld(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	same := allocated(root1, "VCPU", 4, root2, "VCPU", 4, share1, "DISK_GB", 1)
	reshape := func() int {
		p, _ := l.Current().Provider(root1)
		body := fmt.Sprintf(
			`{"inventories":{%q:{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":100},`+
				`"MEMORY_MB":{"total":100}}}},"allocations":{%q:%s}}`,
			root1, p.Generation, onBoth, holding(same, fmt.Sprint(generationsOf(t, l, onBoth).consumer)))
		return call{method: "POST", path: "/reshaper", body: body}.as("h1").send(h).Code
	}
	before, reshapes := generationsOf(t, l, onBoth), 0
	for reshapes < 2000 && reshape() == http.StatusNoContent {
		reshapes++
	}
	after := generationsOf(t, l, onBoth)
	if want := int64(5000 / 3); int64(reshapes) != want ||
		after != (generations{before.root + want, before.shared + want, before.consumer + want}) {
		t.Errorf("%d reshapes: %+v, and then %+v", reshapes, before, after)
	}
	move := func(n int) int {
		to := strings.ReplaceAll(same, root1, []string{numa1, root1}[n%2])
		return call{method: "PUT", path: "/allocations/" +
			onBoth, body: holding(to, fmt.Sprint(generationsOf(t, l, onBoth).consumer))}.as("h1").send(h).Code
	}
	for n, want := range []int{204, 204, 403} { // 5,000 are 1,666 times 3, and 2
		testproc.Equal(t, move(n), want, "move %d: status %d", n)
	}
	now = now.Add(time.Second)
	for n, want := range []int{204, 403} {
		testproc.Equal(t, move(n), want, "a second later, move %d: status %d", n)
	}
}

// limited counts the writes that were refused as too many.
type limited struct {
	answers
	writes int
}

// HostLimited counts one.
func (l *limited) HostLimited() { l.writes++ }

// TestWritesOfAHostAreBounded: writes that succeed and writes that are refused count, long bodies
// more than once. The answer to more is 429 with the time to wait, and the writes of others go on.
func TestWritesOfAHostAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	now, seen, log := clock, &limited{}, &bytes.Buffer{}
	h, l := hostsWorld(t, func(c *api.Config) {
		c.Now, c.Observer, c.Logger = func() time.Time { return now }, seen, zerolog.New(log).Level(zerolog.WarnLevel)
		c.Limits.Body = 32 << 20
	})
	write := call{method: "PUT", path: "/resource_providers/" + root1 + "/traits",
		body: `{"resource_provider_generation":5,"traits":["COMPUTE_NODE"]}`}
	for range 6000 {
		if w := write.as("h1").send(h); w.Code >= http.StatusBadRequest {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
	}
	foreign := call{method: "DELETE", path: "/resource_providers/" + root2 + "/inventories", status: 403}
	for range 3900 {
		foreign.as("h1").do(t, h)
	}
	long := call{method: "PUT", path: "/resource_providers/" + root1 + "/traits",
		body: `{"resource_provider_generation":5,"traits":["COMPUTE_NODE"` + strings.Repeat(" ", 99*2048) + `]}`}
	long.status = http.StatusOK
	long.as("h1").do(t, h) // 100 more
	log.Reset()
	before := l.Current()
	long.status = http.StatusTooManyRequests
	for range 3 {
		w := long.as("h1").do(t, h)
		if got := w.Header().Get("Retry-After"); got != "20" { // 100 of 200 ms each
			t.Errorf("Retry-After: %q", got)
		}
	}
	w := write.as("h1").send(h)
	if detail := errorOf(t, w).Detail; w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" ||
		!strings.Contains(detail, "18000 an hour") {
		t.Errorf("status %d, Retry-After %q: %s", w.Code, w.Header().Get("Retry-After"), detail)
	}
	foreign.status = http.StatusTooManyRequests // refused before anything is done for it
	foreign.as("h1").do(t, h)
	if seen.writes != 5 || l.Current() != before {
		t.Errorf("%d writes were counted as refused, and the state is %d, from %d",
			seen.writes, l.Current().Version(), before.Version())
	}
	if n := strings.Count(log.String(), "writes too much"); n != 1 {
		t.Errorf("%d lines in a minute:\n%s", n, log)
	}
	calls(t, h,
		call{method: "GET", path: "/resource_providers/" + root1, status: 200}.as("h1"),
		call{method: "PUT", path: "/traits/CUSTOM_B", status: 201}.as("h2"),
		call{method: "PUT", path: "/traits/CUSTOM_C", version: "1.39", status: 201},
	)
	now = now.Add(200 * time.Millisecond)
	for _, want := range []int{200, 429} {
		testproc.Equal(t, write.as("h1").send(h).Code, want, "200 ms later: status %d")
	}
	now = now.Add(20 * time.Second)
	p, _ := l.Current().Provider(root1)
	long.status, long.body = http.StatusOK, strings.Replace(long.body, "5", fmt.Sprint(p.Generation), 1)
	long.as("h1").do(t, h)
	now = now.Add(time.Minute)
	for range 400 {
		write.as("h1").send(h)
	}
	if n := strings.Count(log.String(), "writes too much"); n != 2 {
		t.Errorf("%d lines in two minutes:\n%s", n, log)
	}
	// One body cannot be more than all there is, so that it can be written at some time.
	now = now.Add(time.Hour)
	long.body = `{"resource_provider_generation":0,"traits":[` + strings.Repeat(" ", 21<<20) + `]}`
	long.status = http.StatusConflict
	long.as("h1").do(t, h)
	write.status = http.StatusTooManyRequests
	write.as("h1").do(t, h)
}

// TestSizeOfATree: a provider of a host, and its tree, have only so many inventories, traits and
// aggregates, and a consumer only so many allocations in it. What a user gave it may stay, and
// shrink.
func TestSizeOfATree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rules := mayHeal + "\"placement:hosts:aggregates\": \"role:host\"\n"
	h, l := hostsWorld(t, func(c *api.Config) { c.Policy = policyOf(t, api.Legacy, rules) })
	for n := range 1100 {
		call{method: "PUT", path: fmt.Sprintf("/traits/CUSTOM_T%d", n), version: "1.39", status: 201}.do(t, h)
	}
	for n := range 300 {
		call{method: "PUT", path: fmt.Sprintf("/resource_classes/CUSTOM_C%d", n), version: "1.39", status: 201}.do(t, h)
	}
	encoded := func(v any) string {
		b := testproc.Try(json.Marshal(v)).Or(t)
		return string(b)
	}
	put := func(provider, what string, n int) call {
		p, _ := l.Current().Provider(provider)
		body := object{"resource_provider_generation": p.Generation}
		names := make([]string, n)
		switch what {
		case "inventories":
			all := object{"VCPU": object{"total": 1000}}
			for i := range n - len(all) {
				all[fmt.Sprintf("CUSTOM_C%d", i)] = object{"total": 1000}
			}
			body[what] = all
		case "traits":
			for i := range names {
				names[i] = fmt.Sprintf("CUSTOM_T%d", i)
			}
			body[what] = names
		default:
			for i := range names {
				names[i] = fmt.Sprintf("70000000-0000-4000-8000-%012d", i)
			}
			body[what] = names
		}
		return call{method: "PUT", path: "/resource_providers/" + provider + "/" + what,
			version: "1.39", body: encoded(body)}
	}
	try := func(c call, as string, status int) {
		t.Helper()
		c.status = status
		if as != "" {
			c = c.as(as)
		}
		w := c.do(t, h)
		if detail := ""; status == http.StatusForbidden {
			if detail = errorOf(t, w).Detail; !strings.Contains(detail, "would ") ||
				!strings.Contains(detail, "more than") {
				t.Errorf("%s %s: %s", c.method, c.path, detail)
			}
		}
	}
	const big, other = "80000000-0000-4000-8000-000000000001", "80000000-0000-4000-8000-000000000002"
	for uuid, name := range map[string]string{big: "h3", other: "h3.b"} {
		try(call{method: "POST", path: "/resource_providers", body: fmt.Sprintf(`{"name":%q,"uuid":%q}`, name, uuid)},
			"h3", 200)
	}
	for what, most := range map[string]int{"inventories": 200, "traits": 1000, "aggregates": 100} {
		try(put(big, what, most+1), "h3", 403)
		try(put(big, what, most), "h3", 200)
		try(put(big, what, most+20), "", 200)
		try(put(big, what, most+19), "h3", 200)
		try(put(big, what, 1), "h3", 200)
	}
	child := func(n int) string { return fmt.Sprintf("80000000-0000-4000-9000-%012d", n) }
	for n := range 51 {
		try(call{method: "POST", path: "/resource_providers",
			body: fmt.Sprintf(`{"name":"h3_%d","uuid":%q,"parent_provider_uuid":%q}`, n, child(n), big)}, "h3", 200)
	}
	for n := range 49 { // with the one of the root 9,801, and with its trait 19,001
		try(put(child(n), "inventories", 200), "h3", 200)
	}
	try(put(child(49), "inventories", 200), "h3", 403)
	try(put(child(49), "inventories", 199), "h3", 200)
	try(put(child(50), "inventories", 1), "h3", 403)
	for n := range 19 {
		try(put(child(n), "traits", 1000), "h3", 200)
	}
	try(put(child(19), "traits", 1000), "h3", 403)
	try(put(child(19), "traits", 999), "h3", 200)
	try(put(child(20), "traits", 1), "h3", 403)
	// Nor from another tree of its own.
	try(call{method: "POST", path: "/resource_providers",
		body: fmt.Sprintf(`{"name":"h3.b_1","uuid":%q,"parent_provider_uuid":%q}`, nowhere, other)}, "h3", 200)
	try(put(nowhere, "traits", 1), "h3", 200)
	move := call{method: "PUT", path: "/resource_providers/" + nowhere,
		body: fmt.Sprintf(`{"name":"h3.b_1","parent_provider_uuid":%q}`, big)}
	try(move, "h3", 403)
	try(put(child(19), "traits", 998), "h3", 200)
	try(move, "h3", 200)

	parts := func(n int) call {
		of := object{}
		for i := range n {
			provider, class := child(i/190), fmt.Sprintf("CUSTOM_C%d", i%190)
			if of[provider] == nil {
				of[provider] = object{"resources": object{}}
			}
			of[provider].(object)["resources"].(object)[class] = 1
		}
		return call{method: "PUT", path: "/allocations/" + onNone, body: holding(encoded(of), "null")}
	}
	try(parts(501), "h3", 403)
	try(parts(500), "h3", 204)
}
