// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/servers"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/openapi"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReferenceIsCurrent compares docs/api-compute.md and the OpenAPI document with the tables of
// the API.
func TestReferenceIsCurrent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	reference := Reference()
	golden.Text(t, "../../docs/api-compute.md", string(openapi.Markdown(reference)))
	document := testproc.Try(openapi.Write(reference)).Or(t)
	golden.Text(t, "../../docs/openapi/compute.json", string(document))
}

// document is the OpenAPI document that all exchanges of these tests are compared with.
var document = sync.OnceValues(func() (*openapi.Document, error) {
	text, err := openapi.Write(Reference())
	if err != nil {
		return nil, err
	}
	return openapi.Load(text)
})

// compare compares an exchange with the document.
func compare(t testing.TB, r *http.Request, sent []byte, w *httptest.ResponseRecorder) {
	t.Helper()
	testproc.NoErrorf(t, different(r, sent, w.Code, w.Header(), w.Body.Bytes()), "OpenAPI document")
}

// different is how an exchange differs from the document; nil if it does not.
func different(r *http.Request, sent []byte, status int, header http.Header, answer []byte) error {
	d, err := document()
	if err != nil {
		return err
	}
	path := r.URL.Path
	own := strings.Split(r.Header.Get("X-Auth-Token")+":", ":")[1]
	if rest := strings.TrimPrefix(path, api.Prefix); strings.Contains(rest, "/") {
		if project, below, _ := strings.Cut(rest, "/"); project != "" &&
			(project == own || strings.Trim(project, "0123456789abcdef-") == "") {
			path = api.Prefix + below
		}
	}
	switch {
	case path == "/v2.1":
		path = api.Prefix
	case r.Method != http.MethodGet && (path == "/" || path == api.Prefix), path == servers.ConsolePath,
		path == thingsPath, status == statusClientClosed:
		return nil // the documents whatever the method; for browsers; a route of the tests; not answered
	}
	shown := r.Clone(r.Context())
	shown.URL.Path = path
	return errors.Join(askedRule(shown, sent, answer), d.Check(&openapi.Exchange{
		Request: shown, Sent: sent, Version: header.Get("X-OpenStack-Nova-API-Version"), Status: status,
		Answer: answer, AnswerHeaders: header,
		Malformed: malformed(string(answer)),
	}))
}

var (
	schemaError = regexp.MustCompile(
		`"message":"(Invalid input for field/attribute|Additional properties are not allowed|\S* is a ` +
			`required property)`)
	// notInSchemas are refusals for what JSON Schema cannot say; see jsonkit.Document.
	notInSchemas = regexp.MustCompile(
		`Value: -?[0-9. ]+\. -?[0-9. ]+ is (less|greater) than|is not a '(base64|uuid|ipv4|ipv6)'|is not valid ` +
			`under any of the given schemas|does not match '\^\[printable|does not match '\^\(\?! \)`)
)

// malformed says whether a refusal is for a body that does not fit its schema.
func malformed(answer string) bool {
	return schemaError.MatchString(answer) && !notInSchemas.MatchString(answer)
}

var disallowedRule = regexp.MustCompile(`Policy doesn't allow (\S+) to be performed`)

// askedRule returns an error if a refusal names a rule that the call does not have in the
// reference.
func askedRule(r *http.Request, sent, answer []byte) error {
	named := disallowedRule.FindSubmatch(answer)
	if named == nil {
		return nil
	}
	found := api.NewRoutes(new(API).allRoutes()).Find(r)
	if found.Route == nil {
		return nil
	}
	rules := append(slices.Clone(found.Route.Rules), found.Route.Rule)
	if found.Route.Actions != nil {
		var asked map[string]any
		if err := json.Unmarshal(sent, &asked); err != nil {
			return fmt.Errorf("the action: %w", err)
		}
		for name := range asked {
			action := found.Route.Actions[name]
			rules = append(slices.Clone(action.Rules), action.Rule)
		}
	}
	if !slices.ContainsFunc(rules, func(one api.Rule) bool { return one.Name == string(named[1]) }) {
		return fmt.Errorf("%s %s asks for the rule %s, and the reference does not say so",
			r.Method, found.Route.Path, named[1])
	}
	return nil
}

// TestReferenceHasAllCalls: the reference says something of each route and each action, but for
// other forms of the version documents, and has nothing of what is no call and no rule of one.
func TestReferenceHasAllCalls(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rules := map[string][]api.Rule{} // of the calls, by their keys in abouts
	for _, r := range new(API).allRoutes() {
		key := r.Method + " " + r.Path
		if r.Actions == nil && (!r.Open || abouts[key] != nil) {
			rules[key] = append(slices.Clone(r.Rules), r.Rule)
		}
		for name, action := range r.Actions {
			rules[key+" "+name] = append(slices.Clone(action.Rules), action.Rule)
		}
	}
	for key := range rules {
		if abouts[key] == nil {
			t.Errorf("the reference says nothing of %s", key)
		}
	}
	for key, what := range abouts {
		if rules[key] == nil {
			t.Errorf("the reference has %s, and no route is it", key)
		}
		for name := range what.when {
			if !slices.ContainsFunc(rules[key], func(one api.Rule) bool { return one.Name == name }) {
				t.Errorf("the reference says when %s asks for %s, and it does not", key, name)
			}
		}
	}
}

// allCompared ends the tests. They fail if all together leave a successful answer of the document
// without an exchange.
func allCompared(code int) { os.Exit(openapi.Complete(code, document, (*openapi.Document).Missing)) }

// TestHistoryIsThatOfTheReference: what changes in the form of requests and answers is in the
// history, and where that says that something changes, it does.
func TestHistoryIsThatOfTheReference(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := Reference()
	changes := map[int]string{int(api.MinVersion): "the API"}
	note := func(v int, c *apidoc.Call, what string) {
		if v > int(api.MinVersion) && v <= int(api.MaxVersion) {
			changes[v] = c.Method + " " + c.Path + " " + c.Action + " " + what
		}
	}
	for i := range a.Calls {
		c := &a.Calls[i]
		note(c.Since, c, "begins")
		if c.Until > 0 {
			note(c.Until+1, c, "ends")
		}
		for _, p := range c.Query {
			note(p.Since, c, p.Name)
			if p.Until > 0 {
				note(p.Until+1, c, "without "+p.Name)
			}
		}
		if c.Ignores != nil && c.Ignores.Until > 0 {
			note(c.Ignores.Until+1, c, "refuses other parameters")
		}
		bodies := []apidoc.Body{c.Body}
		for _, answer := range c.Answers {
			note(answer.Since, c, "answers")
			bodies = append(bodies, answer.Body)
		}
		for _, b := range bodies {
			for v := max(c.Since, int(api.MinVersion)) + 1; b != nil && v <= int(api.MaxVersion) &&
				(c.Until == 0 || v <= c.Until); v++ {
				if !gocmp.Equal(documentOf(b, v-1), documentOf(b, v)) {
					note(v, c, "has another body")
				}
			}
		}
	}
	for i, h := range history {
		v := api.Version(i) + api.MinVersion // an index of an array of MaxVersion
		what, changed := changes[int(v)]
		switch {
		case h.nova == "":
			t.Errorf("the history says nothing of %s", v)
		case changed && h.here == "":
			t.Errorf("the history says that nothing changes with %s: %s", v, what)
		case changed && h.meaning:
			t.Errorf("the history says of %s that only the meaning changes: %t; the reference: %q", v, h.meaning, what)
		case !changed && !h.meaning && h.here != "":
			t.Errorf("the history says of %s %q, and no call changes", v, h.here)
		}
	}
}

func documentOf(b apidoc.Body, minor int) map[string]any {
	s := b(minor)
	if s == nil {
		return nil
	}
	return js.Document(s)
}
