// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// others carries out what other clients do, line by line.
func (p *play) others(lines []string) {
	p.t.Helper()
	for _, line := range lines {
		words := strings.Fields(line)
		switch words[0] {
		case "claim":
			held := testproc.Try(parseHolding(words[2:])).Or(p.t)
			p.allocate(words[1], held)
		case "free":
			p.must("DELETE", "/allocations/"+uuidFor(words[1]), nil, nil)
		case "delete":
			p.learn()
			p.must("DELETE", "/resource_providers/"+p.uuids[words[1]], nil, nil)
		default:
			provider := testproc.Try(parseProvider(line)).Or(p.t)
			p.put(provider)
		}
	}
}

// nameFor records names whose uuids will appear.
func (p *play) nameFor(names ...string) {
	for _, name := range names {
		p.names[uuidFor(name)] = name
	}
}

// put makes a provider unless one of that name exists, and adds to it.
func (p *play) put(n noted) {
	p.t.Helper()
	p.nameFor(n.aggregates...)
	if !p.learn()[n.name] {
		body := map[string]any{"name": n.name, "uuid": uuidFor(n.name)}
		if n.parent != "" {
			body["parent_provider_uuid"] = p.uuids[n.parent]
		}
		p.must("POST", "/resource_providers", body, nil)
		p.uuids[n.name] = uuidFor(n.name)
	}
	at := "/resource_providers/" + p.uuids[n.name]
	var inventories struct {
		Generation  int64                `json:"resource_provider_generation"`
		Inventories map[string]inventory `json:"inventories"`
	}
	p.must("GET", at+"/inventories", nil, &inventories)
	gone := func(name string) bool { return slices.Contains(n.gone, name) }
	now := maps.Clone(inventories.Inventories)
	for class, inv := range n.inventories {
		p.declare("/resource_classes/", class)
		now[class] = inv
	}
	maps.DeleteFunc(now, func(class string, _ inventory) bool { return gone(class) })
	if !maps.Equal(now, inventories.Inventories) {
		p.must("PUT", at+"/inventories",
			map[string]any{"resource_provider_generation": inventories.Generation, "inventories": now}, &inventories)
	}
	for _, set := range []struct {
		kind string
		more []string
	}{{"traits", n.traits}, {"aggregates", uuidsFor(n.aggregates)}} {
		var got map[string]any
		p.must("GET", at+"/"+set.kind, nil, &got)
		var before, after []string
		for _, item := range got[set.kind].([]any) {
			before = append(before, item.(string))
		}
		after = append(slices.Clone(before), set.more...)
		after = slices.DeleteFunc(after, func(item string) bool { return gone(item) || gone("@"+p.names[item]) })
		slices.Sort(after)
		if after = slices.Compact(after); slices.Equal(after, before) {
			continue
		}
		for _, item := range after {
			if set.kind == "traits" {
				p.declare("/traits/", item)
			}
		}
		p.must("PUT", at+"/"+set.kind,
			map[string]any{"resource_provider_generation": got["resource_provider_generation"],
				set.kind: append([]string{}, after...)}, nil)
	}
}

// learn records the uuids of all providers, and returns their names.
func (p *play) learn() map[string]bool {
	p.t.Helper()
	var list struct {
		Providers []struct{ UUID, Name string } `json:"resource_providers"`
	}
	p.must("GET", "/resource_providers", nil, &list)
	there := map[string]bool{}
	for _, rp := range list.Providers {
		p.uuids[rp.Name], there[rp.Name] = rp.UUID, true
	}
	return there
}

// held is what the consumers of the scenario hold, and names are learnt on the way.
func (p *play) held() holding {
	p.t.Helper()
	p.learn()
	out := holding{}
	for _, consumer := range p.consumers {
		var got struct {
			Allocations map[string]struct{ Resources map[string]int64 }
		}
		p.must("GET", "/allocations/"+uuidFor(consumer), nil, &got)
		out[consumer] = map[string]map[string]int64{}
		for provider, a := range got.Allocations {
			out[consumer][provider] = a.Resources
		}
	}
	return out
}

// declare makes sure that a custom class or trait exists.
func (p *play) declare(under, name string) {
	p.t.Helper()
	if strings.HasPrefix(name, "CUSTOM_") {
		p.must("PUT", under+name, nil, nil)
	}
}

// allocate is what a scheduler does. Consumers whose name begins with "migration" are migrations.
func (p *play) allocate(consumer string, held map[string]map[string]int64) {
	p.t.Helper()
	p.learn()
	p.nameFor(consumer)
	if !slices.Contains(p.consumers, consumer) {
		p.consumers = append(p.consumers, consumer)
	}
	var before struct {
		Generation *int64 `json:"consumer_generation"`
	}
	p.must("GET", "/allocations/"+uuidFor(consumer), nil, &before)
	allocations := map[string]any{}
	for provider, amounts := range held {
		allocations[p.uuids[provider]] = map[string]any{"resources": amounts}
	}
	kind := "INSTANCE"
	if strings.HasPrefix(consumer, "migration") {
		kind = "MIGRATION"
	}
	p.must("PUT", "/allocations/"+uuidFor(consumer), map[string]any{
		"allocations": allocations, "project_id": "p",
		"user_id": "u", "consumer_generation": before.Generation, "consumer_type": kind,
	}, nil)
}

// observedWire forwards an agent's requests, and records them.
type observedWire struct {
	asks chan chan struct{}

	mu       sync.Mutex
	holds    bool // the next write waits
	requests []string
}

func (w *observedWire) hold(hold bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds = hold
}

func (w *observedWire) RoundTrip(r *http.Request) (*http.Response, error) {
	note := r.Method + " " + r.URL.RequestURI()
	if r.Method == http.MethodPost && r.URL.Path == "/resource_providers" {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var created struct{ Name string }
		if err := json.Unmarshal(body, &created); err != nil {
			return nil, err
		}
		note += " " + created.Name
	}
	w.mu.Lock()
	w.requests = append(w.requests, note)
	wait := w.holds && r.Method != http.MethodGet
	w.holds = w.holds && !wait
	w.mu.Unlock()
	if wait {
		goOn := make(chan struct{})
		w.asks <- goOn
		<-goOn
	}
	return http.DefaultTransport.RoundTrip(r)
}

// requestsSince returns the requests since the last call: each write, and then what was read.
func (w *observedWire) requestsSince(uuids map[string]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var known []string
	for name, id := range uuids {
		known = append(known, id, name)
	}
	shorten := strings.NewReplacer(known...)
	var out []string
	reads := map[string]int{}
	for _, request := range w.requests {
		request = shorten.Replace(request)
		if path, read := strings.CutPrefix(request, http.MethodGet+" "); read {
			reads[readOf(path)]++
		} else {
			out = append(out, request)
		}
	}
	var read []string
	for _, what := range slices.Sorted(maps.Keys(reads)) {
		n := reads[what]
		if strings.HasPrefix(what, "provider ") {
			n = (n + 2) / 3 // inventories, traits, aggregates
		}
		if n > 1 {
			what += fmt.Sprintf(" (%d times)", n)
		}
		read = append(read, what)
	}
	if len(w.requests) == 0 {
		out = append(out, "no request")
	} else if len(read) > 0 {
		out = append(out, "reads: "+strings.Join(read, ", "))
	}
	w.requests = nil
	return out
}

// readOf is what a GET reads.
func readOf(path string) string {
	switch {
	case path == "/":
		return "version"
	case strings.Contains(path, "?in_tree="):
		return "tree"
	case strings.Contains(path, "?member_of="), strings.Contains(path, "required="):
		return "sharing providers"
	case strings.Contains(path, "?name="):
		return "name"
	case strings.HasPrefix(path, "/allocations/"):
		return "consumer"
	}
	words := strings.Split(strings.TrimPrefix(path, "/resource_providers/"), "/")
	if len(words) == 2 && slices.Contains([]string{"inventories", "traits", "aggregates"}, words[1]) {
		return "provider " + words[0]
	}
	if len(words) == 2 {
		return words[1] + " of " + words[0]
	}
	return path
}
