// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"encoding/json"
	"slices"
)

// AddControlPlane adds the results for the services of the control plane to the status of an
// agent, if there are any.
func AddControlPlane(status json.RawMessage, results []Result) (json.RawMessage, error) {
	if len(results) == 0 {
		return status, nil
	}
	services, err := json.Marshal(results)
	if err != nil {
		return nil, err
	}
	body := bytes.TrimSpace(status)
	inner, object := bytes.CutPrefix(body, []byte("{"))
	if !object || !json.Valid(body) {
		return status, nil // printed as it is
	}
	inner = bytes.TrimSpace(inner[:len(inner)-1])
	if len(inner) > 0 {
		inner = append(slices.Clip(inner), ',')
	}
	return slices.Concat([]byte("{"), inner, []byte(`"control_plane":`), services, []byte("}")), nil
}
