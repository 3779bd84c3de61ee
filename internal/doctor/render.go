// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"encoding/json"
	"io"
)

// WriteJSON writes the results as JSON: {"worst": …, "results": […]}.
func WriteJSON(w io.Writer, results []Result) error {
	if results == nil {
		results = []Result{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Worst   Severity `json:"worst"`
		Results []Result `json:"results"`
	}{Worst(results), results})
}
