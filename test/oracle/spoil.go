// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// odd are values that hardly fit anywhere.
var odd = []any{nil, true, 1.5, -1, 0, "x", []any{}, object{}, "", 1e300, 3.0,
	json.Number("1000000000000000000000000000000"), "CUSTOM_" + strings.Repeat("A", 260), 2147483648}

// spoil makes something wrong with a body, now and then.
func (g *generator) spoil(st *Step) {
	switch n := g.IntN(100); {
	case g.clean:
	case n < 28:
		var body any
		if json.Unmarshal([]byte(st.Body), &body) == nil {
			st.Body = text(g.wrong(body))
			st.Kind += ", wrong body"
		}
	case n < 32:
		st.Body = pick(g, []string{"", "{", `{"a":1}x`, "nul", "\xff", st.Body[:len(st.Body)-1], "[]",
			`{"name":"\ud800"}`, "\xef\xbb\xbf{}", " " + st.Body + "\n",
			strings.Replace(st.Body, ":", ":NaN,\"x\":", 1), strings.Replace(st.Body, "{", `{"name":"twice",`, 1)})
		st.Kind += ", wrong body"
	}
}

// wrong changes one thing somewhere in a JSON value.
func (g *generator) wrong(v any) any {
	switch v := v.(type) {
	case object:
		if len(v) == 0 || g.chance(10) {
			return pick(g, odd)
		}
		changed := maps.Clone(v)
		key := pick(g, slices.Sorted(maps.Keys(v)))
		switch n := g.IntN(10); {
		case n < 3:
			delete(changed, key)
		case n < 5:
			changed[key] = pick(g, odd)
		case n < 6:
			changed[pick(g, []string{"extra", "", "uuid", "generation"})] = pick(g, odd)
		default:
			changed[key] = g.wrong(v[key])
		}
		return changed
	case []any:
		if len(v) == 0 || g.chance(10) {
			return pick(g, odd)
		}
		changed := slices.Clone(v)
		i := g.IntN(len(v))
		if g.chance(30) {
			return append(changed, v[i])
		}
		changed[i] = g.wrong(v[i])
		return changed
	}
	return pick(g, odd)
}

// headers makes the headers odd, now and then.
func (g *generator) headers(st *Step) {
	if !g.rare(12) {
		return
	}
	switch g.IntN(4) {
	case 0:
		st.Header = map[string]string{"Accept": pick(g,
			[]string{"", "*/*", "text/*", "text/plain",
				"text/html", "application/*", "*/*;q=0.1", "application/json;q=0",
				"application/json; charset=utf-8", "application/xml, application/json;q=0.001", "garbage",
				"text/html;q=0, */*", "application/json;q=0, */*"})}
	case 1:
		if !st.HasBody {
			return
		}
		st.Header = map[string]string{"Content-Type": pick(
			g, []string{"", "text/plain", "application/json; charset=utf-8", "application/xml",
				"Application/JSON", "text/json"})}
	case 2:
		st.Header = map[string]string{"X-Auth-Token": pick(g, []string{"", "someone", "someone:p1", "admin:p1"})}
	case 3:
		st.Version = pick(
			g,
			[]string{
				"placement latest",
				(wire.MaxVersion + 1).HeaderValue(),
				"placement 2.0",
				"placement 0.9",
				"compute 2.1",
				"compute 2.1, placement 1.2",
				"placement",
				"PLACEMENT 1.2",
				"placement 1.2, compute 3",
				",,",
				"placement 1.",
				"placement .5",
				"placement a.b",
				"placement 01.05",
				"placement 1.39.1",
				"placement LATEST",
				"placement  1.30",
				"",
				"1.30",
			},
		)
	}
}
