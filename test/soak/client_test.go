// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

const (
	user         = "user"
	consumerType = "INSTANCE"
)

// paths are those of the operations. The method is the first word of each.
var paths = map[kind]string{
	putAllocations: "/allocations/SUBJECT", postAllocations: "/allocations", deleteAllocations: "/allocations/SUBJECT",
	putInventories: "/resource_providers/SUBJECT/inventories", postReshape: "/reshaper",
	getConsumer: "/allocations/SUBJECT", getHolders: "/resource_providers/SUBJECT/allocations",
	getInventories: "/resource_providers/SUBJECT/inventories", getUsages: "/resource_providers/SUBJECT/usages",
	getTree: "/resource_providers?in_tree=SUBJECT", getProject: "/usages?project_id=SUBJECT",
}

// request is the operation as a method, a path and a body.
func (o op) request() (method, path string, body any) {
	method, _, _ = strings.Cut(string(o.kind), " ")
	switch o.kind {
	case putAllocations:
		body = o.claimBody(o.subject)
	case postAllocations:
		body = o.claimBodies()
	case putInventories:
		body = offerBody(o.offers[o.subject])
	case postReshape:
		inventories := world.Record{}
		for p, want := range o.offers {
			inventories[p] = offerBody(want)
		}
		body = world.Record{"inventories": inventories, "allocations": o.claimBodies()}
	}
	return method, strings.ReplaceAll(paths[o.kind], "SUBJECT", o.subject), body
}

func (o op) claimBody(consumer string) any {
	want := o.claims[consumer]
	allocations := world.Record{}
	for p, resources := range want.resources {
		allocations[p] = world.Record{"resources": resources}
	}
	var generation any
	if want.generation > 0 {
		generation = want.generation
	}
	return world.Record{
		"allocations": allocations, "project_id": project(o.tree), "user_id": user,
		"consumer_generation": generation, "consumer_type": consumerType,
	}
}

func (o op) claimBodies() any {
	out := world.Record{}
	for c := range o.claims {
		out[c] = o.claimBody(c)
	}
	return out
}

func offerBody(want offer) any {
	inventories := world.Record{}
	for class, total := range want.totals {
		inventories[class] = world.Record{"total": total}
	}
	return world.Record{"resource_provider_generation": want.generation, "inventories": inventories}
}

// client sends requests to one server.
type client struct {
	http *http.Client
	url  string
}

// timeout bounds the wait for an answer. No test expects it to pass.
const timeout = 60 * time.Second

func newClient(t testing.TB, url string) *client {
	t.Helper()
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{&http.Client{Transport: transport, Timeout: timeout}, url}
}

// header is that of an administrator who may reshape, as a service.
var header = http.Header{
	"X-Auth-Token": {"admin"}, "X-Roles": {"admin,service"}, "Openstack-Api-Version": {"placement 1.39"},
}

// ask sends one request.
func (c *client) ask(ctx context.Context, method, path string, body any) (*world.Answer, error) {
	return world.Exchange(ctx, c.http, method, c.url+path, header, body)
}

// expect sends a request that is no part of a history, and must be answered with a status.
func (c *client) expect(ctx context.Context, status int, method, path string, body any) error {
	a, err := c.ask(ctx, method, path, body)
	if err == nil && a.Code != status {
		err = errors.New(a.String())
	}
	return err
}

// ready waits until the server says that it is ready.
func (c *client) ready(t *testing.T) {
	t.Helper()
	testproc.Eventually(t, 4*testproc.Patience, "the server is ready", func() error {
		return c.expect(t.Context(), http.StatusOK, http.MethodGet, "/readyz", nil)
	})
}

// change makes a change that no history is about.
func (c *client) change(ctx context.Context, n uint64) error {
	return c.expect(ctx, http.StatusCreated, http.MethodPut, fmt.Sprintf("/traits/CUSTOM_%X", n), nil)
}

// notKnown is what a server says that does not know what became of a write.
const notKnown = "The outcome of the change is not known"

// do makes one request of a history. Whatever keeps the answer away makes a read one that says
// nothing and a write one whose outcome is unknown. An error is an answer that no Placement may
// give.
func (c *client) do(ctx context.Context, o op) (answer, error) {
	method, path, body := o.request()
	got, err := c.ask(ctx, method, path, body)
	var network *net.OpError
	switch {
	case errors.As(err, &network) && network.Op == "dial": // nothing was sent
		return answer{later: true}, nil
	case err != nil:
		return answer{unknown: true}, nil //nolint:nilerr // that is what unknown says
	}
	a, again := answer{status: got.Code}, got.Header.Get("Retry-After") != ""
	switch {
	case a.status == http.StatusOK:
		a.body, err = canonical(o.kind, got.Raw)
	case again && (a.status == http.StatusServiceUnavailable || a.status == http.StatusConflict):
		a.later = true
	case a.status == http.StatusInternalServerError && bytes.Contains(got.Raw, []byte(notKnown)):
		a.unknown = true
	case a.status == http.StatusNotFound, a.status == http.StatusConflict:
		var e wire.ErrorBody
		if err = json.Unmarshal(got.Raw, &e); err == nil && len(e.Errors) != 1 {
			err = fmt.Errorf("%d errors in %s", len(e.Errors), got)
		}
		if err == nil {
			a.code = string(e.Errors[0].Code)
		}
	case a.status != http.StatusNoContent:
		err = errors.New(got.String())
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
		body := world.Record{"name": fmt.Sprintf("tree%d-%d", tree, n), "uuid": providerUUID(tree, n)}
		if n > 0 {
			body["parent_provider_uuid"] = providerUUID(tree, 0)
		}
		if err := c.expect(ctx, http.StatusOK, http.MethodPost, "/resource_providers", body); err != nil {
			return fmt.Errorf("making a provider of tree %d: %w", tree, err)
		}
	}
	return nil
}
