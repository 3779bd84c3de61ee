// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/health"
)

// ErrRefused means that the agent refuses a request to protect data. The text has the reason.
var ErrRefused = errors.New("refused")

// ErrNotRunning means that no agent answers on the socket.
var ErrNotRunning = errors.New("the agent is not running")

// maxAnswer limits an answer: a tree of 10,000 providers is about 10 MiB.
const maxAnswer = 64 << 20

// Client is a client of the agent at one socket.
type Client struct {
	path string
	http *http.Client
}

// NewClient returns a client for the socket at path. It does not connect yet.
func NewClient(path string) *Client { return &Client{path: path, http: files.Client(path)} }

// Status returns the agent's status.
func (c *Client) Status(ctx context.Context) (health.Status, error) {
	return get[health.Status](ctx, c, "status")
}

// Configuration returns the sources of the agent's configuration.
func (c *Client) Configuration(ctx context.Context) (Configuration, error) {
	return get[Configuration](ctx, c, "configuration")
}

// TreePath is the argument of Raw for a tree.
func TreePath(opts TreeOptions) string {
	if opts.Servers {
		return "tree?servers=true"
	}
	return "tree"
}

// Raw returns the JSON of "status", "tree" or "plan".
func (c *Client) Raw(ctx context.Context, what string) (json.RawMessage, error) {
	return c.do(ctx, http.MethodGet, what)
}

func (c *Client) do(ctx context.Context, method, what string) (json.RawMessage, error) {
	return c.send(ctx, method, what, nil)
}

func (c *Client) send(ctx context.Context, method, what string, body []byte) (json.RawMessage, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent/v1/"+what, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if err := files.SetKey(req.Header, c.path); err != nil {
		return nil, c.explain(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(err)
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		var f failure
		if json.Unmarshal(content, &f) != nil || f.Error == "" {
			f.Error = resp.Status
		}
		if f.Refused {
			return nil, fmt.Errorf("%w: %s", ErrRefused, f.Error)
		}
		return nil, fmt.Errorf("the agent returned an error: %s", f.Error)
	}
	return content, nil
}

// PlanPath is the argument of Raw for a plan.
func PlanPath(reshape bool) string {
	if reshape {
		return "plan?reshape=true"
	}
	return "plan"
}

// Refresh requests a pass over every node that first compares its tree with Placement. It does not
// wait.
func (c *Client) Refresh(ctx context.Context) error {
	_, err := c.do(ctx, http.MethodPost, "refresh")
	return err
}

// UndoReshape undoes a reshape. Errors: [ErrRefused] with the reason.
func (c *Client) UndoReshape(ctx context.Context, id int64) error {
	_, err := c.do(ctx, http.MethodPost, fmt.Sprintf("reshapes/%d/undo", id))
	return err
}

func get[T any](ctx context.Context, c *Client, what string) (out T, err error) {
	body, err := c.Raw(ctx, what)
	if err != nil {
		return out, err
	}
	return Decode[T](body)
}

// Decode decodes an answer of [Client.Raw].
func Decode[T any](answer json.RawMessage) (out T, err error) {
	if err := json.Unmarshal(answer, &out); err != nil {
		return out, fmt.Errorf(
			"cannot decode the agent's answer; does the agent have another version than this command? %w", err)
	}
	return out, nil
}

func (c *Client) explain(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf(
			"%w: no process answers at %s; start it (systemctl start compute-agent), or name its directory with "+
				"--runtime-dir", ErrNotRunning, c.path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf(
			"permission denied on the agent's socket %s: run this command as the agent's user or as root (sudo)",
			c.path)
	}
	return fmt.Errorf("asking the agent at %s: %w", c.path, err)
}
