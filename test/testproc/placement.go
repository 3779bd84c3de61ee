// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
)

// Placement is a running Placement of OpenStack's (Debian's package python3-placement).
type Placement struct {
	// URL is its endpoint.
	URL string
}

// KeystoneUser is the account with which a Placement validates tokens: a user of the project
// "service" with the role service, both in the domain "Default".
type KeystoneUser struct{ AuthURL, User, Password string }

// StartPlacement runs a Placement with an empty database until the test ends. Without the package
// the test is not run.
func StartPlacement(t testing.TB) *Placement {
	t.Helper()
	return startPlacement(t, order{})
}

// StartPlacementOn is StartPlacement on a database of package dbservers. Its tables are made where
// there are none. It cannot be Reset.
func StartPlacementOn(t testing.TB, dsn string) *Placement {
	t.Helper()
	return startPlacement(t, order{Database: dsn})
}

// StartPlacementWithKeystone is StartPlacement of one that asks Keystone about every token, each
// time.
func StartPlacementWithKeystone(t testing.TB, k KeystoneUser) *Placement {
	t.Helper()
	return startPlacement(t, order{Keystone: []string{k.AuthURL, k.User, k.Password}})
}

func startPlacement(t testing.TB, o order) *Placement {
	t.Helper()
	NeedPlacement(t)
	o.Do = "serve"
	c, answer, err := o.give(t.Context())
	Check(t, err)
	t.Cleanup(func() {
		// It ends in order with what it reads, and closes its side when it has ended.
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
		_ = c.Close()
	})
	return &Placement{URL: fmt.Sprintf("http://127.0.0.1:%d", answer.Port)}
}

// NeedPlacement skips a test without OpenStack's Placement; see [NotRun].
func NeedPlacement(t testing.TB) {
	t.Helper()
	c, answer, err := order{Do: "look"}.give(t.Context())
	Check(t, err)
	_ = c.Close()
	if answer.Missing != "" {
		NotRun(t, "OpenStack's Placement needs Debian's package python3-placement (tools/packages.sh real): "+
			answer.Missing)
	}
}

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
func AskPlacement[R ~[]any | ~[3]any](ctx context.Context, database string, requests []R) ([]Answer, error) {
	c, answer, err := order{Do: "ask", Database: database, Requests: requests}.give(ctx)
	if err != nil {
		return nil, err
	}
	return answer.Answers, c.Close()
}

// Reset deletes all that was written to the service. Its standard traits and resource classes stay.
func (p *Placement) Reset(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/-/reset", http.NoBody)
	if err != nil {
		return fmt.Errorf("empty OpenStack's Placement: %w", err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("empty OpenStack's Placement: %w", err)
	}
	_ = resp.Body.Close() // It is empty.
	if resp.StatusCode != http.StatusNoContent {
		return fmt.Errorf("empty OpenStack's Placement: status %s", resp.Status)
	}
	return nil
}

// order is what placement.py is to do.
type order struct {
	Do       string   `json:"do"`
	Database string   `json:"database,omitempty"`
	Keystone []string `json:"keystone,omitempty"`
	Requests any      `json:"requests,omitempty"`
}

// obeyed is its answer.
type obeyed struct {
	Error   string   `json:"error"`
	Missing string   `json:"missing"`
	Port    int      `json:"port"`
	Answers []Answer `json:"answers"`
}

// give has an order done. What was started ends with the connection.
func (o order) give(ctx context.Context) (c *net.UnixConn, answer obeyed, err error) {
	path, err := placements()
	if err != nil {
		return nil, answer, fmt.Errorf("OpenStack's Placement: %w", err)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, answer, fmt.Errorf("OpenStack's Placement: %w", err)
	}
	c, _ = conn.(*net.UnixConn)
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if err = json.NewEncoder(c).Encode(o); err == nil {
		var line []byte
		if line, err = bufio.NewReader(c).ReadBytes('\n'); err == nil {
			err = json.Unmarshal(line, &answer)
		}
	}
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		_ = c.Close()
		return nil, answer, fmt.Errorf("OpenStack's Placement: %w", err)
	}
	return c, answer, nil
}
