// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
)

//go:embed requests.py
var requestsScript string

// Answer is an answer of OpenStack's Placement.
type Answer struct {
	Status int
	Body   json.RawMessage
}

// UnmarshalJSON reads the list [status, body].
func (a *Answer) UnmarshalJSON(text []byte) error {
	var parts [2]json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	a.Body = parts[1]
	return json.Unmarshal(parts[0], &a.Status)
}

// AskPlacement makes requests to OpenStack's Placement on a database, without a server: a file, or
// the DSN of a database of package dbservers. Each request is a list of method, path and, where it
// has them, body and microversion.
func AskPlacement[R ~[]any | ~[3]any](ctx context.Context, database string, requests []R) (answers []Answer, err error) {
	input, err := json.Marshal(requests)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-c", requestsScript, database)
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("OpenStack Placement: %w\n%s", err, &stderr)
	}
	if err := json.Unmarshal(out, &answers); err != nil {
		return nil, fmt.Errorf("OpenStack Placement: %w in %s", err, out)
	}
	return answers, nil
}
