// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Difference is one thing in which two answers do not mean the same.
type Difference struct {
	What, Real, Ours string
}

func (d Difference) String() string {
	return fmt.Sprintf("%s: real %s, ours %s", d.What, d.Real, d.Ours)
}

// compare says what is different between two answers to one request. Errors agree when their
// status, code and title do; what else is in them is prose.
func compare(real, ours Answer, method string) []Difference {
	var found []Difference
	differ := func(what string, real, ours any) {
		if a, b := fmt.Sprint(real), fmt.Sprint(ours); a != b {
			found = append(found, Difference{what, a, b})
		}
	}
	differ("status", real.Status, ours.Status)
	if len(found) > 0 {
		return found
	}
	differ("OpenStack-API-Version", real.Header["Openstack-Api-Version"], ours.Header["Openstack-Api-Version"])
	differ("Vary", real.Header["Vary"], ours.Header["Vary"])
	differ("Allow", methods(real.Header), methods(ours.Header))
	differ("Location", real.Header.Get("Location"), ours.Header.Get("Location"))
	differ("Cache-Control", real.Header.Get("Cache-Control"), ours.Header.Get("Cache-Control"))
	differ("Last-Modified", real.Header.Get("Last-Modified") != "", ours.Header.Get("Last-Modified") != "")
	differ("X-Openstack-Request-Id", real.Header.Get("X-Openstack-Request-Id") != "",
		ours.Header.Get("X-Openstack-Request-Id") != "")
	if method == http.MethodHead {
		return found
	}
	differ("media type", media(real), media(ours))
	if media(real) != media(ours) || media(real) != "application/json" || real.Body == "" || ours.Body == "" {
		if real.Status < 400 {
			differ("body", canonical(real.Body), canonical(ours.Body))
		}
		return found
	}
	if real.Status < 400 {
		differ("body", canonical(real.Body), canonical(ours.Body))
		return found
	}
	a, b := errorOf(real.Body), errorOf(ours.Body)
	for _, field := range []string{"status", "title", "code", "max_version", "min_version"} {
		differ("error "+field, a[field], b[field])
	}
	return found
}

func media(a Answer) string {
	m, _, _ := strings.Cut(a.Header.Get("Content-Type"), ";")
	return m
}

// methods are those of an Allow header, in one order.
func methods(h http.Header) string {
	list := strings.Split(strings.ReplaceAll(h.Get("Allow"), " ", ""), ",")
	slices.Sort(list)
	return strings.Join(list, ",")
}

// errorOf is the one error in the body of an error; nil when the body has another form.
func errorOf(body string) object {
	var decoded struct {
		Errors []object `json:"errors"`
	}
	if json.Unmarshal([]byte(body), &decoded) != nil || len(decoded.Errors) != 1 {
		return nil
	}
	return decoded.Errors[0]
}

// canonical is a JSON text in a form that is the same for texts that mean the same: keys and lists
// are sorted (no list of the API has an order), and numbers are written in one way. What is not
// JSON stays as it is.
func canonical(body string) string {
	var v any
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.UseNumber()
	if decoder.Decode(&v) != nil || decoder.More() {
		return body
	}
	return text(normal(v))
}

func normal(v any) any {
	switch v := v.(type) {
	case object:
		for k := range v {
			v[k] = normal(v[k])
		}
	case []any:
		keys := make([]string, len(v))
		for i := range v {
			keys[i] = text(normal(v[i]))
		}
		slices.Sort(keys)
		sorted := make([]any, len(v))
		for i, key := range keys {
			sorted[i] = json.RawMessage(key)
		}
		return sorted
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	return v
}
