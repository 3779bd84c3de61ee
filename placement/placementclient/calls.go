// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// ConsumerAllocations is all that a consumer holds, wherever that is, as GET
// /allocations/{consumer} has it.
type ConsumerAllocations struct {
	wire.ConsumerAllocations
	// Written is when it was last written, to the second, and Date when Placement said so, by its
	// clock; zero: it did not say.
	Written, Date time.Time
}

// Allocations reads what a consumer holds. One that Placement does not know holds nothing, and has
// no generation: Placement makes no difference there. One GET.
func (c *Client) Allocations(ctx context.Context, consumer string) (ConsumerAllocations, error) {
	var out ConsumerAllocations
	call := Call{Method: http.MethodGet, Path: "/allocations/" + url.PathEscape(consumer),
		Out: &out.ConsumerAllocations}
	if err := c.Send(ctx, &call); err != nil {
		return ConsumerAllocations{}, err
	}
	out.Written, out.Date = date(call.Header, "Last-Modified"), date(call.Header, "Date")
	if len(out.Allocations) == 0 {
		out.ConsumerGeneration = nil
	}
	return out, nil
}

// date is the time that a header says; zero if it says none.
func date(h http.Header, name string) time.Time {
	t, err := http.ParseTime(h.Get(name))
	if err != nil {
		return time.Time{}
	}
	return t
}

// PutAllocations replaces all allocations of a consumer if it still has the given generation (nil:
// it has no allocations yet). One PUT.
//
// Errors: [ErrConflict] if the consumer or a provider was written concurrently (Placement has one
// code for both), or for a 409 that is not Placement's, which is also an [ErrOutcomeUnknown];
// [ErrInsufficientCapacity], for which Placement has no code of its own; [ErrInvalid] for an
// unknown provider or class; [ErrOutcomeUnknown].
func (c *Client) PutAllocations(ctx context.Context, consumer string, all wire.ConsumerAllocations) error {
	return allocated(c.Do(ctx, http.MethodPut, "/allocations/"+url.PathEscape(consumer), all, NoContent{}))
}

// PostAllocations replaces all allocations of some consumers, or of none of them, if each still has
// its generation. One POST, and the errors of PutAllocations.
func (c *Client) PostAllocations(ctx context.Context, all map[string]wire.ConsumerAllocations) error {
	return allocated(c.Do(ctx, http.MethodPost, "/allocations", all, NoContent{}))
}

// allocated has an error of its own for a lack of capacity.
func allocated(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Status == http.StatusConflict && wire.ErrorCode(e.Code) == wire.CodeUndefined {
		e.Kind = ErrInsufficientCapacity
	}
	return err
}

// Admission reads what a host may report of itself; [ErrNotFound] if nothing is known of it, or if
// the server is OpenStack's Placement, which has no hosts. One GET.
func (c *Client) Admission(ctx context.Context, host string) (a wire.HostAdmission, err error) {
	err = c.Do(ctx, http.MethodGet, admissionPath(host), nil, &a)
	return a, err
}

// Admit states what a host may report of itself, and returns what that is now. One POST.
func (c *Client) Admit(
	ctx context.Context, host string, change wire.AdmissionChange,
) (a wire.HostAdmission, err error) {
	err = c.Do(ctx, http.MethodPost, admissionPath(host), change, &a)
	return a, err
}

func admissionPath(host string) string { return "/hosts/" + url.PathEscape(host) + "/admission" }

// ProvidersInTree lists the providers of the tree in which a provider stands; none if Placement
// does not know it. One GET.
func (c *Client) ProvidersInTree(ctx context.Context, uuid string) ([]wire.ResourceProvider, error) {
	return c.Providers(ctx, url.Values{"in_tree": {uuid}})
}

// Providers lists the providers that a query finds. One GET.
func (c *Client) Providers(ctx context.Context, query url.Values) ([]wire.ResourceProvider, error) {
	var list wire.ResourceProviders
	if err := c.Do(ctx, http.MethodGet, "/resource_providers?"+query.Encode(), nil, &list); err != nil {
		return nil, err
	}
	return list.ResourceProviders, nil
}

// Inventories reads what a provider has, by class. One GET.
func (c *Client) Inventories(ctx context.Context, provider string) (map[string]wire.Inventory, error) {
	var out wire.Inventories
	err := c.Do(ctx, http.MethodGet, "/resource_providers/"+url.PathEscape(provider)+"/inventories", nil, &out)
	return out.Inventories, err
}

// Aggregates reads which aggregates a provider is in. One GET.
func (c *Client) Aggregates(ctx context.Context, provider string) ([]string, error) {
	var out wire.AggregateList
	err := c.Do(ctx, http.MethodGet, "/resource_providers/"+url.PathEscape(provider)+"/aggregates", nil, &out)
	return out.Aggregates, err
}

// ProviderUsages reads what is allocated of a provider, by class. One GET.
func (c *Client) ProviderUsages(ctx context.Context, provider string) (map[string]int64, error) {
	var out wire.ProviderUsages
	err := c.Do(ctx, http.MethodGet, "/resource_providers/"+url.PathEscape(provider)+"/usages", nil, &out)
	return out.Usages, err
}

// AllocationsOf reads who holds what of a provider, by consumer. One GET.
func (c *Client) AllocationsOf(ctx context.Context, provider string) (map[string]wire.HeldAllocation, error) {
	var out wire.ProviderAllocations
	if err := c.Do(ctx, http.MethodGet, "/resource_providers/"+
		url.PathEscape(provider)+"/allocations", nil, &out); err != nil {
		return nil, err
	}
	return out.Allocations, nil
}
