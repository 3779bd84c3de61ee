// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// widgets is an API with one call, whose bodies have a size from 1.2 on.
func widgets(t *testing.T) *openapi.Document {
	t.Helper()
	body := func(minor int) js.Schema {
		p := js.Properties{{Name: "name", Schema: js.Schema{js.Type("string")}}}
		if minor >= 2 {
			p = append(p, js.Property{Name: "size", Schema: js.Schema{js.Type("integer")}})
		}
		return js.ClosedObject(p, "name")
	}
	text := js.Schema{js.Type("string")}
	a := apidoc.API{
		Title: "Widgets", Service: "widgets", Major: 1, Max: 3,
		Error:    func(int) js.Schema { return js.Schema{js.Type("object")} },
		Failures: []apidoc.Failure{{Status: 400, Code: "bad", Reason: "It is bad."}},
		Calls: []apidoc.Call{{
			Group: "Widgets", Method: http.MethodPut, Path: "/widgets/{name}", Summary: "Sets a widget",
			Versions: apidoc.Versions{Since: 1}, Body: body,
			Query: []apidoc.Parameter{
				{Name: "color", Text: "Its color.", Schema: text, Versions: apidoc.Versions{Since: 2}},
				{Name: "part", Text: "A part.",
					Schema: text, Suffixes: []apidoc.Suffix{{Versions: apidoc.Versions{Since: 3}, Pattern: "[0-9]+"}}},
			},
			Answers: []apidoc.Answer{{Status: 200, Text: "Set.", Body: body}},
		}},
	}
	document := testproc.Try(openapi.Write(&a)).Or(t)
	return testproc.Try(openapi.Load(document)).Or(t)
}

func TestCheckFindsDifferences(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const fits = `{"name":"a"}`
	for _, c := range []struct {
		name, url, version, sent, answer string
		status                           int
		malformed                        bool
		want                             string // "" for no difference
	}{
		{"equal", "/widgets/a?color=red", "1.2", `{"name":"a","size":1}`, `{"name":"a","size":1}`, 200, false, ""},
		{"suffix", "/widgets/a?part12=x", "1.3", fits, fits, 200, false, ""},
		{"suffix before its time", "/widgets/a?part12=x", "1.2", fits, fits, 200, false, "parameter part12"},
		{"parameter before its time", "/widgets/a?color=red", "1.1", fits, fits, 200, false, "parameter color"},
		{"call before its time", "/widgets/a", "1.0", fits, fits, 200, false, "at this microversion"},
		{"body before its time", "/widgets/a", "1.1", `{"name":"a","size":1}`, fits, 200, false, "takes a body"},
		{"answer before its time", "/widgets/a", "1.1", fits, `{"name":"a","size":1}`, 200,
			false, "the answer does not fit"},
		{"unknown status", "/widgets/a", "1.1", fits, fits, 409, false, "no such status"},
		{"unknown path", "/gadgets", "1.1", fits, fits, 200, false, "no such call"},
		{"unknown code", "/widgets/a", "1.1", fits, `{"errors":[{"code":"worse"}]}`, 400, false, "no such code"},
		{"known code", "/widgets/a", "1.1", fits, `{"errors":[{"code":"bad"}]}`, 400, false, ""},
		{"refused and fits", "/widgets/a", "1.1", fits, `{}`, 400, true, "refuses a body that fits"},
		{"refused", "/widgets/a", "1.1", `{"nam":"a"}`, `{}`, 400, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := widgets(t).Check(&openapi.Exchange{
				Request: httptest.NewRequest(http.MethodPut, c.url, nil), Sent: []byte(c.sent), Version: c.version,
				Status: c.status, Answer: []byte(c.answer),
				AnswerHeaders: http.Header{"Content-Type": {"application/json"}}, Malformed: c.malformed,
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMissingListsWhatNoTestHas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if got, want := widgets(t).Missing(), []string{"PUT /widgets/{name} 200"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestMissingListsMembersThatNoAnswerHas: what an answer never has, or only as null, is as good as
// not there.
func TestMissingListsMembersThatNoAnswerHas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := js.Schema{js.Type("string")}
	part := apidoc.Whole(apidoc.Members("kind", text, "since", apidoc.OrNull("string")))
	answer := func(minor int) js.Schema {
		p := apidoc.Members("parts", apidoc.List(part),
			"colors", js.Schema{js.Type("object"), js.PatternProperties("^[a-z]+$", part)})
		if minor >= 2 {
			p = append(p, apidoc.Members("made", apidoc.OrNull("string"))...)
		}
		return apidoc.Whole(p)
	}
	document := testproc.Try(openapi.Write(&apidoc.API{
		Title: "Gadgets", Service: "gadgets", Major: 1, Max: 3,
		Error: func(int) js.Schema { return js.Schema{js.Type("object")} },
		Calls: []apidoc.Call{{Group: "Gadgets", Method: http.MethodGet, Path: "/gadget", Summary: "Shows the gadget",
			Answers: []apidoc.Answer{{Status: 200, Text: "It.", Body: answer}}}},
	})).Or(t)
	d := testproc.Try(openapi.Load(document)).Or(t)
	for _, c := range []struct {
		version, answer string
		want            []string
	}{
		{"1.1", `{"parts":[],"colors":{}}`,
			[]string{"colors.{}.kind", "colors.{}.since", "made", "parts[].kind", "parts[].since"}},
		{"1.2", `{"parts":[{"kind":"a","since":null}],"colors":{},"made":null}`,
			[]string{"colors.{}.kind", "colors.{}.since", "made", "parts[].since"}},
		{"1.2", `{"parts":[{"kind":"a","since":"x"}],"colors":{"red":{"kind":"b","since":null}},"made":null}`,
			[]string{"colors.{}.since", "made"}},
		{"1.3", `{"parts":[],"colors":{"red":{"kind":"b","since":"x"}},"made":"now"}`, nil},
	} {
		err := d.Check(&openapi.Exchange{
			Request: httptest.NewRequest(http.MethodGet, "/gadget", nil), Version: c.version, Status: 200,
			Answer: []byte(c.answer), AnswerHeaders: http.Header{"Content-Type": {"application/json"}},
		})
		testproc.Check(t, err)
		var want []string
		for _, member := range c.want {
			want = append(want, "GET /gadget 200 "+member)
		}
		if got := d.MissingMembers(); !slices.Equal(got, want) || len(d.Missing()) > 0 {
			t.Errorf("after %s: got %q, want %q", c.answer, got, want)
		}
	}
}

// switches is an API whose calls differ in the only member of their bodies.
func switches(t *testing.T) *openapi.Document {
	t.Helper()
	call := func(action string, until int, body, answer apidoc.Body) apidoc.Call {
		return apidoc.Call{
			Group: "Switches", Method: http.MethodPost, Path: "/switches/{name}/action", Action: action,
			Summary: "Switches", Versions: apidoc.Versions{Until: until},
			Body: body, Answers: []apidoc.Answer{{Status: 200, Text: "Done.", Body: answer}},
			Ignores:  &apidoc.Versions{Until: 1},
			Policies: []apidoc.Policy{{Rule: "switches:" + action}},
		}
	}
	on := func(minor int) js.Schema {
		p := apidoc.Members("color", js.Schema{js.Type("string")})
		if minor >= 2 {
			p = apidoc.Members("level", js.Schema{js.Type("integer")})
		}
		return apidoc.Whole(apidoc.Members("on", js.ClosedObject(p)))
	}
	off := apidoc.Always(apidoc.Whole(apidoc.Members("off", js.Schema{js.Type("null")})))
	a := apidoc.API{
		Title: "Switches", Service: "switches", Major: 1,
		Max: 3, Error: func(int) js.Schema { return js.Schema{js.Type("object")} },
		Calls: []apidoc.Call{
			call("on", 0, on,
				apidoc.Always(js.ClosedObject(apidoc.Members("power", js.Schema{js.Type("integer")}), "power"))),
			call("off", 2, off, nil),
			{
				Group: "Switches", Method: http.MethodGet,
				Path: "/switches", Summary: "Lists switches", Ignores: &apidoc.Versions{Until: 1},
				Query: []apidoc.Parameter{{Name: "color", Text: "Its color.", Schema: js.Schema{js.Type("string")}}},
				Answers: []apidoc.Answer{{Status: 200,
					Text: "All.", Body: apidoc.Always(js.Schema{js.Type("object")})}},
			},
		},
	}
	document := testproc.Try(openapi.Write(&a)).Or(t)
	return testproc.Try(openapi.Load(document)).Or(t)
}

func TestCheckTellsActionsApart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct{ name, version, sent, answer, want string }{
		{"equal", "1.1", `{"on":{"color":"red"}}`, `{"power":1}`, ""},
		{"the body of another microversion", "1.2", `{"on":{"color":"red"}}`, `{"power":1}`, "takes a body"},
		{"the answer of another action", "1.1", `{"on":{}}`, ``, "the answer does not fit"},
		{"without a body", "1.1", `{"off":null}`, ``, ""},
		{"after its time", "1.3", `{"off":null}`, ``, "at this microversion"},
		{"unknown", "1.1", `{"dim":null}`, ``, "at this microversion"},
		{"two at once", "1.1", `{"on":{},"off":null}`, ``, "at this microversion"},
	} {
		t.Run(c.name, func(t *testing.T) {
			header := http.Header{"Content-Type": {"application/json"}}
			if c.sent == `{"off":null}` {
				header = nil
			}
			compare(t, switches(t), httptest.NewRequest(http.MethodPost, "/switches/a/action", nil), c.version,
				c.sent, c.answer, header, c.want)
		})
	}
}

func TestCheckKnowsWhichParametersAreIgnored(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	header := http.Header{"Content-Type": {"application/json; charset=UTF-8"}}
	for _, c := range []struct{ url, version, want string }{
		{"/switches?color=red", "1.2", ""}, {"/switches?shape=round", "1.1", ""},
		{"/switches?shape=round", "1.2", "parameter shape"},
	} {
		compare(t, switches(t), httptest.NewRequest(http.MethodGet, c.url, nil), c.version, "", "{}", header, c.want)
	}
}

// compare checks an exchange that succeeded, and what is wrong with it; "" for nothing.
func compare(
	t *testing.T, d *openapi.Document, r *http.Request, version, sent, answer string, header http.Header, want string,
) {
	t.Helper()
	err := d.Check(&openapi.Exchange{Request: r, Sent: []byte(sent), Version: version, Status: 200,
		Answer: []byte(answer), AnswerHeaders: header})
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s at %s: got %v, want %q", r.URL, version, err, want)
	}
}
