// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"

	"github.com/google/uuid"
)

// Count is how much an answer of GET /allocation_candidates holds.
type Count struct{ Candidates, Summaries, Bytes int }

// CountCandidates asks, and counts.
func CountCandidates(ctx context.Context, c *Client, query string) (Count, error) {
	answer, err := c.Send(ctx, http.MethodGet, query, nil)
	if err != nil {
		return Count{}, err
	}
	var v struct {
		Requests  []json.RawMessage          `json:"allocation_requests"`
		Summaries map[string]json.RawMessage `json:"provider_summaries"`
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return Count{}, fmt.Errorf("read the answer to GET %s: %w", query, err)
	}
	return Count{len(v.Requests), len(v.Summaries), len(answer)}, nil
}

// Candidates is the allocation candidates of a query with a limit; 0: no limit.
func Candidates(c *Client, query string, limit int) func(context.Context) (int, error) {
	if limit > 0 {
		query += "&limit=" + strconv.Itoa(limit)
	}
	return func(ctx context.Context) (int, error) {
		answer, err := c.Send(ctx, http.MethodGet, query, nil)
		return len(answer), err
	}
}

// Claimer claims candidates for consumers of its own, as a scheduler does.
type Claimer struct {
	c          *Client
	random     *rand.Rand
	candidates []json.RawMessage
	held       []string // paths of the allocations that ClaimFirst has made
}

// NewClaimer is one of several that go about it in different orders.
func NewClaimer(c *Client, seed uint64) *Claimer {
	return &Claimer{c: c, random: rand.New(rand.NewPCG(seed, 1))}
}

// Ask gets candidates.
func (c *Claimer) Ask(ctx context.Context, query string, limit int) (int, error) {
	answer, err := c.c.Send(ctx, http.MethodGet, query+"&limit="+strconv.Itoa(limit), nil)
	if err != nil {
		return 0, err
	}
	var v struct {
		Requests []struct {
			Allocations json.RawMessage `json:"allocations"`
		} `json:"allocation_requests"`
	}
	if err := json.Unmarshal(answer, &v); err != nil {
		return 0, fmt.Errorf("read the candidates: %w", err)
	}
	c.candidates = c.candidates[:0]
	for _, r := range v.Requests {
		c.candidates = append(c.candidates, r.Allocations)
	}
	if len(c.candidates) == 0 {
		return 0, errors.New("there are no candidates")
	}
	return len(answer), nil
}

// Take makes the claims of trees the candidates, without asking.
func (c *Claimer) Take(trees []Tree) error {
	c.candidates = c.candidates[:0]
	for _, t := range trees {
		numa := t.NUMA[1]
		for _, device := range numa.Devices {
			allocations, err := json.Marshal(object{
				t.Root:    object{"resources": object{"DISK_GB": 10}},
				numa.UUID: object{"resources": object{"VCPU": 1, "MEMORY_MB": 256}},
				device:    object{"resources": object{"FPGA": 1}},
			})
			if err != nil {
				return err
			}
			c.candidates = append(c.candidates, allocations)
		}
	}
	return nil
}

// Claim claims one of the candidates, any, for a new consumer, and gives it up again.
func (c *Claimer) Claim(ctx context.Context) error {
	path := "/allocations/" + uuid.NewString()
	if _, err := c.c.Send(ctx, http.MethodPut, path, object{
		"allocations": c.candidates[c.random.IntN(len(c.candidates))], "project_id": projectID,
		"user_id": userID, "consumer_generation": nil,
	}); err != nil {
		return err
	}
	_, err := c.c.Send(ctx, http.MethodDelete, path, nil)
	return err
}

// halfAHost is a query of which a flat host can serve one.
const halfAHost = "/allocation_candidates?resources=VCPU:40"

// ClaimFirst asks for candidates and claims the first of them for a new consumer, which keeps it.
// It reports false when the claim is refused with 409.
func (c *Claimer) ClaimFirst(ctx context.Context, limit int) (bool, error) {
	if _, err := c.Ask(ctx, halfAHost, limit); err != nil {
		return false, err
	}
	path := "/allocations/" + uuid.NewString()
	_, err := c.c.Send(ctx, http.MethodPut, path, object{
		"allocations": c.candidates[0], "project_id": projectID, "user_id": userID, "consumer_generation": nil,
	})
	var refusal *StatusError
	if errors.As(err, &refusal) && refusal.Status == http.StatusConflict {
		return false, nil
	}
	if err == nil {
		c.held = append(c.held, path)
	}
	return err == nil, err
}

// GiveUp gives up what ClaimFirst has claimed.
func (c *Claimer) GiveUp(ctx context.Context) error {
	for _, path := range c.held {
		if _, err := c.c.Send(ctx, http.MethodDelete, path, nil); err != nil {
			return err
		}
	}
	c.held = nil
	return nil
}

// Replacer replaces the allocations of a consumer again and again, each time by others.
type Replacer struct {
	c          *Client
	path       string
	tree       Tree
	generation *int // nil as long as the consumer has no allocations
	disk       int
}

// NewReplacer reads the generation at which it begins.
func NewReplacer(ctx context.Context, c *Client, consumer string, tree Tree) (*Replacer, error) {
	path := "/allocations/" + consumer
	has, err := read[struct {
		Generation *int `json:"consumer_generation"`
	}](ctx, c, path)
	return &Replacer{c: c, path: path, tree: tree, generation: has.Generation, disk: 10}, err
}

// Replace replaces them.
func (r *Replacer) Replace(ctx context.Context) error {
	r.disk ^= 1
	_, err := r.c.Send(ctx, http.MethodPut, r.path, object{"allocations": object{
		r.tree.Root:         object{"resources": object{"DISK_GB": r.disk}},
		r.tree.NUMA[1].UUID: object{"resources": object{"VCPU": 1, "MEMORY_MB": 256}},
	}, "project_id": projectID, "user_id": userID, "consumer_generation": r.generation})
	if err != nil {
		return err
	}
	if r.generation == nil {
		r.generation = new(int)
	}
	*r.generation++
	return nil
}

const (
	projectID = "5b9a6a6a6a0e4f0ea6c6b6d4f3f0c001"
	userID    = "5b9a6a6a6a0e4f0ea6c6b6d4f3f0c002"
)

// Refresh is what an agent reads of one provider to know it again: four requests. It returns the
// bytes of the answers.
func Refresh(ctx context.Context, c *Client, provider string) (int, error) {
	n := 0
	for _, what := range []string{"inventories", "aggregates", "traits", "allocations"} {
		answer, err := c.Send(ctx, http.MethodGet, "/resource_providers/"+provider+"/"+what, nil)
		if err != nil {
			return 0, err
		}
		n += len(answer)
	}
	return n, nil
}

// InventoryWriter writes the disk of a host again and again, each time another.
type InventoryWriter struct {
	c          *Client
	root       string
	generation int
	total      int
}

// NewInventoryWriter reads the generation at which it begins.
func NewInventoryWriter(ctx context.Context, c *Client, root string) (*InventoryWriter, error) {
	p, err := read[struct{ Generation int }](ctx, c, "/resource_providers/"+root)
	return &InventoryWriter{c: c, root: root, generation: p.Generation, total: 20480}, err
}

// Write replaces the inventories.
func (w *InventoryWriter) Write(ctx context.Context) (int, error) {
	w.total ^= 1
	answer, err := w.c.Send(ctx, http.MethodPut, "/resource_providers/"+w.root+"/inventories", object{
		"resource_provider_generation": w.generation, "inventories": object{"DISK_GB": object{"total": w.total}},
	})
	if err == nil {
		w.generation++
	}
	return len(answer), err
}
