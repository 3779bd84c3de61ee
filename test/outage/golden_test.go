// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/compute-agent/compute-agent/test/golden"
)

// golden compares a body with testdata/NAME.json.
func (w *world) golden(t *testing.T, name string, a *answer) {
	t.Helper()
	var body any
	a.decode(t, &body)
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	check(t, encoder.Encode(w.normal(body)))
	golden.Text(t, filepath.Join("testdata", name+".json"), out.String())
}

var (
	endpointForm = regexp.MustCompile(`https?://127\.0\.0\.1:[0-9]+`)
	uuidForm     = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	secondForm   = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
	microForm    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}$`)
	hostIDForm   = regexp.MustCompile(`^[0-9a-f]{56}$`)
	requestForm  = regexp.MustCompile(`req-` + uuidForm.String())
)

// normal replaces what is another in every run: servers by their names, other identifiers, times by
// their form, and the endpoint.
func (w *world) normal(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			switch key {
			case "adminPass":
				value = "<password>"
			case "details": // of a fault, in words for people
				value = "<details>"
			case "OS-EXT-SRV-ATTR:reservation_id":
				value = "<reservation>"
			case "OS-EXT-SRV-ATTR:instance_name":
				value = "<instance>"
			default:
				value = w.normal(value)
			}
			out[key] = value
		}
		return out
	case []any:
		out := []any{}
		for _, value := range v {
			out = append(out, w.normal(value))
		}
		return out
	case string:
		switch {
		case secondForm.MatchString(v):
			return "<time>"
		case microForm.MatchString(v):
			return "<microseconds>"
		case hostIDForm.MatchString(v):
			return "<host>"
		}
		v = requestForm.ReplaceAllString(endpointForm.ReplaceAllString(v, "<endpoint>"), "<request>")
		return uuidForm.ReplaceAllStringFunc(v, func(id string) string {
			if id == image {
				return "<image>"
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if name := w.names[id]; name != "" {
				return fmt.Sprintf("<%s>", name)
			}
			return "<uuid>"
		})
	}
	return v
}
