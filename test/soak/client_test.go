// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

const (
	user         = "user"
	consumerType = "INSTANCE"
)

// request is the operation as a method, a path and a body.
func (o op) request() (method, path string, body any) {
	switch o.kind {
	case putAllocations:
		return http.MethodPut, "/allocations/" + o.subject, o.claimBody(o.subject)
	case postAllocations:
		return http.MethodPost, "/allocations", o.claimBodies()
	case deleteAllocations:
		return http.MethodDelete, "/allocations/" + o.subject, nil
	case putInventories:
		return http.MethodPut, "/resource_providers/" + o.subject + "/inventories", offerBody(o.offers[o.subject])
	case postReshape:
		inventories := map[string]any{}
		for p, want := range o.offers {
			inventories[p] = offerBody(want)
		}
		return http.MethodPost, "/reshaper", map[string]any{"inventories": inventories, "allocations": o.claimBodies()}
	case getConsumer:
		return http.MethodGet, "/allocations/" + o.subject, nil
	case getHolders:
		return http.MethodGet, "/resource_providers/" + o.subject + "/allocations", nil
	case getInventories:
		return http.MethodGet, "/resource_providers/" + o.subject + "/inventories", nil
	case getUsages:
		return http.MethodGet, "/resource_providers/" + o.subject + "/usages", nil
	case getTree:
		return http.MethodGet, "/resource_providers?in_tree=" + o.subject, nil
	case getProject:
		return http.MethodGet, "/usages?project_id=" + o.subject, nil
	}
	panic("no such operation: " + o.kind)
}

func (o op) claimBody(consumer string) any {
	want := o.claims[consumer]
	allocations := map[string]any{}
	for p, resources := range want.resources {
		allocations[p] = map[string]any{"resources": resources}
	}
	var generation any
	if want.generation > 0 {
		generation = want.generation
	}
	return map[string]any{"allocations": allocations, "project_id": project(o.tree), "user_id": user, "consumer_generation": generation, "consumer_type": consumerType}
}

func (o op) claimBodies() any {
	out := map[string]any{}
	for c := range o.claims {
		out[c] = o.claimBody(c)
	}
	return out
}

func offerBody(want offer) any {
	inventories := map[string]any{}
	for class, total := range want.totals {
		inventories[class] = map[string]any{"total": total}
	}
	return map[string]any{"resource_provider_generation": want.generation, "inventories": inventories}
}

// client sends requests to one server.
type client struct {
	http *http.Client
	url  string
}

// timeout bounds the wait for an answer. No test expects it to pass.
const timeout = 60 * time.Second

func newClient(url string) *client {
	return &client{&http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: timeout}, url}
}

// raw sends one request as the admin, at 1.39.
func (c *client) raw(ctx context.Context, method, path string, body any) (status int, header http.Header, answer []byte, err error) {
	var text io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return 0, nil, nil, err
		}
		text = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, text)
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("X-Roles", "admin,service") // a service may reshape
	req.Header.Set("OpenStack-API-Version", "placement 1.39")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it is read to its end
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, answer, err
}

// do makes one request of a history. Whatever keeps the answer away makes a read one that says
// nothing and a write one whose outcome is unknown. An error is an answer that no Placement may
// give.
func (c *client) do(ctx context.Context, o op) (answer, error) {
	method, path, body := o.request()
	status, header, text, err := c.raw(ctx, method, path, body)
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial": // nothing was sent
		return answer{later: true}, nil
	case err != nil:
		return answer{unknown: true}, nil //nolint:nilerr // that is what unknown says
	}
	a := answer{status: status}
	switch {
	case status == http.StatusOK:
		a.body, err = canonical(o.kind, text)
	case status == http.StatusServiceUnavailable && header.Get("Retry-After") != "", status == http.StatusConflict && header.Get("Retry-After") != "":
		a.later = true
	case status == http.StatusInternalServerError && strings.Contains(string(text), "The outcome of the change is not known"):
		a.unknown = true
	case status == http.StatusNotFound, status == http.StatusConflict:
		var e wire.ErrorBody
		if err = json.Unmarshal(text, &e); err == nil && len(e.Errors) != 1 {
			err = fmt.Errorf("%s %s: %d errors in %s", method, path, len(e.Errors), text)
		}
		if err == nil {
			a.code = string(e.Errors[0].Code)
		}
	case status != http.StatusNoContent:
		err = fmt.Errorf("%s %s: status %d: %s", method, path, status, text)
	}
	return a, err
}

// canonical is a body in the form that the model gives it: keys in order; of a tree only the
// generations.
func canonical(k kind, text []byte) (string, error) {
	var body any
	if k == getTree {
		var list wire.ResourceProviders
		if err := json.Unmarshal(text, &list); err != nil {
			return "", err
		}
		generations := map[string]int64{}
		for _, p := range list.ResourceProviders {
			generations[p.UUID] = p.Generation
		}
		body = generations
	} else if err := json.Unmarshal(text, &body); err != nil {
		return "", err
	}
	out, err := json.Marshal(body)
	return string(out), err
}

// The trees that the storms are about: a root with two children, and four consumers.
const (
	providersPerTree = 3
	consumersPerTree = 4
)

func project(tree int) string { return fmt.Sprintf("project-%d", tree) }
func providerUUID(tree, n int) string {
	return fmt.Sprintf("%08x-0000-4000-8000-%012x", tree, n)
}
func consumerUUID(tree, n int) string {
	return fmt.Sprintf("%08x-0000-4000-9000-%012x", tree, n)
}

// newForest is the state of a tree before anything is offered.
func newForest(tree int) *forest {
	f := &forest{project: project(tree), providers: map[string]offer{}, consumers: map[string]holding{}}
	for n := range providersPerTree {
		f.providers[providerUUID(tree, n)] = offer{}
	}
	return f
}

// plant makes the providers of a tree.
func (c *client) plant(ctx context.Context, tree int) error {
	for n := range providersPerTree {
		body := map[string]any{"name": fmt.Sprintf("tree%d-%d", tree, n), "uuid": providerUUID(tree, n)}
		if n > 0 {
			body["parent_provider_uuid"] = providerUUID(tree, 0)
		}
		status, _, text, err := c.raw(ctx, http.MethodPost, "/resource_providers", body)
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("making a provider of tree %d: %d %s %w", tree, status, text, err)
		}
	}
	return nil
}
