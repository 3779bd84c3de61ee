// SPDX-License-Identifier: Apache-2.0

package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
	"github.com/compute-agent/compute-agent/test/openapi"
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
			Group: "Widgets", Method: http.MethodPut, Path: "/widgets/{name}", Summary: "Sets a widget", Versions: apidoc.Versions{Since: 1}, Body: body,
			Query: []apidoc.Parameter{
				{Name: "color", Text: "Its color.", Schema: text, Versions: apidoc.Versions{Since: 2}},
				{Name: "part", Text: "A part.", Schema: text, Suffixes: []apidoc.Suffix{{Versions: apidoc.Versions{Since: 3}, Pattern: "[0-9]+"}}},
			},
			Answers: []apidoc.Answer{{Status: 200, Text: "Set.", Body: body}},
		}},
	}
	document, err := a.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	d, err := openapi.Load(document)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheckFindsDifferences(t *testing.T) {
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
		{"answer before its time", "/widgets/a", "1.1", fits, `{"name":"a","size":1}`, 200, false, "the answer does not fit"},
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
				Status: c.status, Answer: []byte(c.answer), AnswerHeaders: http.Header{"Content-Type": {"application/json"}}, Malformed: c.malformed,
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMissingListsWhatNoTestHas(t *testing.T) {
	if got, want := widgets(t).Missing(), []string{"PUT /widgets/{name} 200"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
