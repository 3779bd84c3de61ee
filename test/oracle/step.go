// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// Step is one request as the generator makes it. Its path, its query and its body may hold
// placeholders:
//
//	{{c3}}                the consumer in slot 3
//	"{{gen UUID +0}}"     the generation of a provider plus a number; replaces its quotes, too
//	"{{cgen 3 +0}}"       the generation of the consumer in slot 3, or null when it is new
type Step struct {
	// Kind is what the generator calls it, for the counts.
	Kind   string
	Method string
	Path   string
	Query  []Param
	// Version is the value of the OpenStack-API-Version header; no header when empty.
	Version string
	// Header are other headers than the usual ones, or instead of them. An empty value takes the
	// header away.
	Header map[string]string
	// Body is sent when HasBody is set.
	Body    string
	HasBody bool
}

// Param is one parameter of a query. With Raw set, Value is the whole of it, as it is.
type Param struct {
	Name, Value string
	Raw         bool
}

// Request is a step with its placeholders filled in, as both services get it.
type Request struct {
	Method string
	// Target is the path and the query.
	Target  string
	Header  http.Header
	Body    string
	HasBody bool
}

// Answer is what a service made of a Request.
type Answer struct {
	Status int
	Header http.Header
	Body   string
}

// state is what placeholders ask for.
type state interface {
	// consumer is the uuid in a slot.
	consumer(slot int) string
	// generation of a provider, 0 when it is not there.
	generation(ctx context.Context, uuid string) (int64, error)
	// consumerGeneration is -1 for a consumer that is not there.
	consumerGeneration(ctx context.Context, uuid string) (int64, error)
}

var placeholder = regexp.MustCompile(`"\{\{(gen|cgen) ([^ }]+) ([+-]\d+)\}\}"|\{\{c(\d+)\}\}`)

// fill replaces the placeholders of a text.
func fill(ctx context.Context, text string, s state) (string, error) {
	var failed error
	filled := placeholder.ReplaceAllStringFunc(text, func(found string) string {
		m := placeholder.FindStringSubmatch(found)
		if m[4] != "" {
			slot, _ := strconv.Atoi(m[4]) // Digits, by the pattern.
			return s.consumer(slot)
		}
		delta, _ := strconv.ParseInt(m[3], 10, 64) // Digits, by the pattern.
		var at int64
		var err error
		if m[1] == "gen" {
			at, err = s.generation(ctx, m[2])
		} else {
			slot, _ := strconv.Atoi(m[2])
			if at, err = s.consumerGeneration(ctx, s.consumer(slot)); err == nil && at < 0 && delta == 0 {
				return "null"
			}
		}
		if err != nil {
			failed = err
		}
		return strconv.FormatInt(at+delta, 10)
	})
	return filled, failed
}

// render fills in what the step leaves open.
func (st *Step) render(ctx context.Context, s state) (Request, error) {
	r := Request{Method: st.Method, HasBody: st.HasBody, Header: http.Header{}}
	target := st.Path
	if len(st.Query) > 0 {
		parts := make([]string, len(st.Query))
		for i, p := range st.Query {
			parts[i] = p.text()
		}
		target += "?" + strings.Join(parts, "&")
	}
	var err error
	if r.Target, err = fill(ctx, target, s); err != nil {
		return r, fmt.Errorf("fill in %s: %w", target, err)
	}
	if r.Body, err = fill(ctx, st.Body, s); err != nil {
		return r, fmt.Errorf("fill in %s: %w", st.Body, err)
	}
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("Accept", "application/json")
	if st.Version != "" {
		r.Header.Set("OpenStack-API-Version", st.Version)
	}
	if st.HasBody {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range st.Header {
		if value == "" {
			r.Header.Del(name)
		} else {
			r.Header.Set(name, value)
		}
	}
	return r, nil
}

// readable are the characters that a query may hold as they are, and that QueryEscape would hide.
var readable = strings.NewReplacer("%3A", ":", "%2C", ",", "%21", "!", "%7B", "{", "%7D", "}")

func (p Param) text() string {
	if p.Raw {
		return p.Value
	}
	return url.QueryEscape(p.Name) + "=" + readable.Replace(url.QueryEscape(p.Value))
}

// get reads the first value of a parameter of the step.
func (st *Step) get(name string) (string, bool) {
	for _, p := range st.Query {
		if p.Name == name && !p.Raw {
			return p.Value, true
		}
	}
	return "", false
}

// minor is the minor number of the step's microversion; -1 when its header is an odd one.
func (st *Step) minor() int {
	if st.Version == "" {
		return 0
	}
	text, found := strings.CutPrefix(st.Version, "placement 1.")
	if n, err := strconv.Atoi(text); found && err == nil && n >= 0 && n <= newest {
		return n
	}
	return -1
}

// clone is a copy that shares nothing with the step.
func (st *Step) clone() Step {
	c := *st
	c.Query = append([]Param(nil), st.Query...)
	c.Header = make(map[string]string, len(st.Header))
	for k, v := range st.Header {
		c.Header[k] = v
	}
	return c
}
