// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Document is an OpenAPI document whose microversions are in the extension x-openstack. It is safe
// for concurrent use.
type Document struct {
	spec *openapi3.T

	mu sync.Mutex
	// seen are answers that were compared, and their members, as Missing and MissingMembers list
	// them.
	seen     map[string]bool
	compiled map[*openapi3.Schema]compiled
}

// compiled is a schema to compare with, and the same as a value.
type compiled struct {
	*jsonschema.Schema
	value any
}

// Load reads a document, which must be valid OpenAPI.
func Load(text []byte) (*Document, error) {
	spec, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	if err := spec.Validate(context.Background()); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return &Document{spec: spec, seen: map[string]bool{}, compiled: map[*openapi3.Schema]compiled{}}, nil
}

// Exchange is a request and its answer. Version is the microversion of the answer, as 1.39, and ""
// if it has none.
type Exchange struct {
	Request       *http.Request
	Sent          []byte
	Version       string
	Status        int
	Answer        []byte
	AnswerHeaders http.Header
	// Malformed: the server refused the body because it does not fit.
	Malformed bool
}

// Check returns an error if the document does not have the exchange. Paths and methods that are not
// in the document must be refused.
func (d *Document) Check(e *Exchange) error {
	path, operation := d.find(e.Request.Method, e.Request.URL.Path)
	if operation == nil {
		if e.Status < 300 && e.Request.Method != http.MethodHead && e.Request.Method != http.MethodOptions {
			return fmt.Errorf("%s %s: status %d, and the document has no such call",
				e.Request.Method, e.Request.URL.Path, e.Status)
		}
		return nil
	}
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%s %s at %q, status %d: %w",
			e.Request.Method, path, e.Version, e.Status, fmt.Errorf(format, args...))
	}
	reference := operation.Responses.Value(strconv.Itoa(e.Status))
	if reference == nil {
		return wrong("the document has no such status: %s", e.Answer)
	}
	response := reference.Value
	if e.Status < 300 {
		if !within(e.Version, operation.Extensions) || !within(e.Version, response.Extensions) || !e.acted(response) {
			return wrong("the document does not have it at this microversion")
		}
		if err := d.request(e, operation); err != nil {
			return wrong("%w", err)
		}
	} else if codes, has := response.Extensions["x-openstack-error-codes"].([]any); has && e.Version != "" {
		if code := codeOf(e.Answer); code != "" && !slices.Contains(codes, any(code)) {
			return wrong("the document has no such code: %s", e.Answer)
		}
	}
	if e.Malformed && e.Version != "" {
		if schema := at(bodySchema(operation), e); schema != nil && d.valid(schema, e.Sent) == nil {
			return wrong("the server refuses a body that fits the document: %s: %s", e.Sent, e.Answer)
		}
	}
	members, err := d.answer(e, response)
	if err != nil {
		return wrong("%w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	answer := e.Request.Method + " " + path + " " + strconv.Itoa(e.Status)
	d.seen[answer] = true
	for _, member := range members {
		d.seen[answer+" "+member] = true
	}
	return nil
}

// Missing lists the successful answers of the document that Check did not see, as "GET /path 200".
func (d *Document) Missing() []string {
	return d.unseen(func(answer string, _ *openapi3.Response) []string { return []string{answer} })
}

// MissingMembers lists the members of successful answers that Check did not see, or only as null,
// as "GET /path 200 list[].member".
func (d *Document) MissingMembers() []string {
	return d.unseen(func(answer string, response *openapi3.Response) (all []string) {
		for _, member := range membersOf(response) {
			all = append(all, answer+" "+member)
		}
		return all
	})
}

// unseen lists what Check did not see of each successful answer.
func (d *Document) unseen(of func(answer string, response *openapi3.Response) []string) (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for path, item := range d.spec.Paths.Map() {
		for method, operation := range item.Operations() {
			for status, response := range operation.Responses.Map() {
				if status < "300" {
					all = append(all, of(method+" "+path+" "+status, response.Value)...)
				}
			}
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(one string) bool { return d.seen[one] })
}

// quicker begins the pattern with which make test skips the tests of other tiers: all others are
// the whole package.
const quicker = "^Test(Real|"

// Complete is the exit code of the tests of a package: 1 if all of them ran and passed, and left
// something of the document without an exchange, which missing lists.
func Complete(code int, document func() (*Document, error), missing func(*Document) []string) int {
	some := flag.Lookup("test.run").Value.String() + flag.Lookup("test.list").Value.String()
	if skipped := flag.Lookup("test.skip").Value.String(); !strings.HasPrefix(skipped, quicker) {
		some += skipped
	}
	if code != 0 || some != "" {
		return code
	}
	d, err := document()
	if err != nil {
		return 1
	}
	for _, one := range missing(d) {
		_, _ = os.Stderr.WriteString("no test compares with the OpenAPI document: " + one + "\n")
		code = 1
	}
	return code
}

// find finds the call of a path, which can have {name} for a segment.
func (d *Document) find(method, path string) (pattern string, operation *openapi3.Operation) {
	segments := strings.Split(path, "/")
	best := -1
	for candidate, item := range d.spec.Paths.Map() {
		parts := strings.Split(candidate, "/")
		literal := 0
		match := len(parts) == len(segments)
		for i := 0; match && i < len(parts); i++ {
			switch {
			case strings.HasPrefix(parts[i], "{"):
				match = segments[i] != ""
			case parts[i] == segments[i]:
				literal++
			default:
				match = false
			}
		}
		if match && literal > best {
			best, pattern, operation = literal, candidate, item.GetOperation(method)
		}
	}
	return pattern, operation
}

// request compares a request that succeeded.
func (d *Document) request(e *Exchange, operation *openapi3.Operation) error {
	ignored, ignores := operation.Extensions["x-openstack-ignores-parameters"].(map[string]any)
	if len(operation.Parameters) > 1 || ignores { // the first is the header with the microversion
		for key := range e.Request.URL.Query() {
			if err := parameter(operation, key, e.Version); err != nil && (!ignores || !between(e.Version, ignored)) {
				return err
			}
		}
	}
	if !e.hasBody(operation) {
		return nil
	}
	schema := at(bodySchema(operation), e)
	if schema == nil {
		if openstack(bodySchema(operation).Value.Extensions)["discriminator"] == "action" {
			return fmt.Errorf("the server takes an action that the document does not have at this microversion: %s",
				e.Sent)
		}
		return nil
	}
	if err := d.valid(schema, e.Sent); err != nil {
		return fmt.Errorf("the server takes a body that does not fit the document: %s: %w", e.Sent, err)
	}
	return nil
}

// parameter checks that a parameter exists at a microversion.
func parameter(operation *openapi3.Operation, key, version string) error {
	for _, reference := range operation.Parameters {
		p := reference.Value
		suffix, found := strings.CutPrefix(key, p.Name)
		if p.In != openapi3.ParameterInQuery || !found || !within(version, p.Extensions) {
			continue
		}
		if suffix != "" && !suffixed(p, suffix, version) {
			continue
		}
		return nil
	}
	return fmt.Errorf("the server takes the parameter %s, and the document does not have it", key)
}

func suffixed(p *openapi3.Parameter, suffix, version string) bool {
	forms, _ := p.Extensions["x-openstack-suffixes"].([]any)
	for _, form := range forms {
		f, _ := form.(map[string]any)
		pattern, _ := f["pattern"].(string)
		if between(version, f) && regexp.MustCompile("^(?:"+pattern+")$").MatchString(suffix) {
			return true
		}
	}
	return false
}

// answer compares the body of an answer, and returns its members that have a value.
func (d *Document) answer(e *Exchange, response *openapi3.Response) (members []string, err error) {
	media := response.Content.Get("application/json")
	kind, _, _ := strings.Cut(e.AnswerHeaders.Get("Content-Type"), ";")
	switch {
	case media == nil && len(e.Answer) > 0 && e.Status < 300:
		return nil, fmt.Errorf("the answer has a body, and the document none: %s", e.Answer)
	case media == nil, kind != "application/json", e.Request.Method == http.MethodHead:
		return nil, nil
	}
	schema := at(media.Schema, e)
	if e.Version == "" && openstack(media.Schema.Value.Extensions)["discriminator"] == "microversion" {
		schema = media.Schema.Value // any of them
	}
	if schema == nil {
		return nil, fmt.Errorf("the document has no body at this microversion: %s", e.Answer)
	}
	value, c, err := d.read(schema, e.Answer)
	if err == nil {
		err = c.Validate(value)
	}
	if err != nil {
		return nil, fmt.Errorf("the answer does not fit the document: %s: %w", e.Answer, err)
	}
	if e.Status < 300 {
		members = membersIn(c.value, value, "")
	}
	return members, nil
}

func bodySchema(operation *openapi3.Operation) *openapi3.SchemaRef {
	if operation.RequestBody == nil {
		return nil
	}
	return operation.RequestBody.Value.Content.Get("application/json").Schema
}

// hasBody says whether there is a body to compare: one that need not be there can be missing.
func (e *Exchange) hasBody(operation *openapi3.Operation) bool {
	return operation.RequestBody != nil && (operation.RequestBody.Value.Required || len(e.Sent) > 0)
}

// action is the name of the only member of the body, "" without one.
func (e *Exchange) action() string {
	var body map[string]json.RawMessage
	if json.Unmarshal(e.Sent, &body) != nil || len(body) != 1 {
		return ""
	}
	for name := range body {
		return name
	}
	return ""
}

// acted says whether the action of the request can be answered so.
func (e *Exchange) acted(response *openapi3.Response) bool {
	all, is := response.Extensions["x-openstack-actions"].([]any)
	return !is || slices.ContainsFunc(all, func(one any) bool {
		x, _ := one.(map[string]any)
		return x["action-name"] == e.action() && between(e.Version, x)
	})
}

// at is the schema for the action and the microversion of an exchange; nil if there is none.
func at(s *openapi3.SchemaRef, e *Exchange) *openapi3.Schema {
	if s == nil {
		return nil
	}
	of, is := s.Value.AnyOf, func(map[string]any) bool { return true }
	switch openstack(s.Value.Extensions)["discriminator"] {
	case "action":
		of, is = s.Value.OneOf, func(x map[string]any) bool { return x["action-name"] == e.action() }
	case "microversion":
	default:
		return s.Value
	}
	for _, one := range of {
		if is(openstack(one.Value.Extensions)) && within(e.Version, one.Value.Extensions) {
			return at(one, e)
		}
	}
	return nil
}

// valid compares a text with a schema.
func (d *Document) valid(s *openapi3.Schema, text []byte) error {
	value, c, err := d.read(s, text)
	if err != nil {
		return err
	}
	return c.Validate(value)
}

// read reads a text and the schema that it is compared with.
func (d *Document) read(s *openapi3.Schema, text []byte) (value any, c compiled, err error) {
	if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(text)); err != nil {
		return nil, compiled{}, fmt.Errorf("no JSON: %w", err)
	}
	c, err = d.compile(s)
	return value, c, err
}

// compile compiles a schema at its first use: that takes longer than all that is compared with it.
func (d *Document) compile(s *openapi3.Schema) (compiled, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known, is := d.compiled[s]; is {
		return known, nil
	}
	value, err := valueOf(s)
	if err != nil {
		return compiled{}, err
	}
	const url = "schema.json"
	c := jsonschema.NewCompiler()
	if err := c.AddResource(url, value); err != nil {
		return compiled{}, fmt.Errorf("schema: %w", err)
	}
	schema, err := c.Compile(url)
	if err != nil {
		return compiled{}, fmt.Errorf("schema: %w", err)
	}
	d.compiled[s] = compiled{schema, value}
	return d.compiled[s], nil
}

// within says whether a microversion is in the range of x-openstack.
func within(version string, extensions map[string]any) bool {
	return between(version, openstack(extensions))
}

func openstack(extensions map[string]any) map[string]any {
	x, _ := extensions["x-openstack"].(map[string]any)
	return x
}

func between(version string, x map[string]any) bool {
	lowest, _ := x["min-ver"].(string)
	highest, _ := x["max-ver"].(string)
	v := minor(version)
	return (lowest == "" || v >= minor(lowest)) && (highest == "" || v <= minor(highest))
}

func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// codeOf is the code of the first error of an answer; that of an error in the form of the compute
// API is the name of its only member.
func codeOf(text []byte) string {
	var body struct {
		Errors []struct {
			Code string `json:"code"`
		} `json:"errors"`
	}
	if json.Unmarshal(text, &body) == nil && len(body.Errors) > 0 {
		return body.Errors[0].Code
	}
	return (&Exchange{Sent: text}).action()
}
