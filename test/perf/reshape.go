// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// ReshapeHost is a host whose guests have one VGPU each, of the root or of its children.
type ReshapeHost struct {
	Root      string
	Children  [8]string
	Consumers []string
	moved     bool // the inventory is on the children
}

// NewReshapeHost makes up a host with guests.
func NewReshapeHost(random *rand.Rand, guests int) *ReshapeHost {
	h := &ReshapeHost{Root: NewUUID(random), Consumers: make([]string, guests)}
	for i := range h.Children {
		h.Children[i] = NewUUID(random)
	}
	for i := range h.Consumers {
		h.Consumers[i] = NewUUID(random)
	}
	return h
}

// share is the VGPUs of a child.
func (h *ReshapeHost) share() int { return (len(h.Consumers) + len(h.Children) - 1) / len(h.Children) }

func vgpus(n int) object { return object{"VGPU": object{"total": n}} }

func allocation(provider string) object {
	return object{provider: object{"resources": object{"VGPU": 1}}}
}

// Load makes the host, with the inventory and all guests on the root.
func (h *ReshapeHost) Load(ctx context.Context, c *Client) error {
	s := steps{ctx: ctx, c: c}
	s.provider(h.Root, h.Root, "", vgpus(h.share()*len(h.Children)))
	for _, child := range h.Children {
		s.send(http.MethodPost,
			"/resource_providers", object{"uuid": child, "name": "vgpu-" + child, "parent_provider_uuid": h.Root})
	}
	if s.err != nil {
		return s.err
	}
	return LoadConsumers(ctx, c, h.Consumers, func(int) object { return allocation(h.Root) })
}

// LoadConsumers makes consumers with allocations, 100 at a time.
func LoadConsumers(ctx context.Context, c *Client, consumers []string, allocations func(i int) map[string]any) error {
	const atOnce = 100
	for begin := 0; begin < len(consumers); begin += atOnce {
		body := object{}
		for i := begin; i < min(begin+atOnce, len(consumers)); i++ {
			body[consumers[i]] = object{"allocations": allocations(i), "project_id": projectID,
				"user_id": userID, "consumer_generation": nil}
		}
		if _, err := c.Send(ctx, http.MethodPost, "/allocations", body); err != nil {
			return err
		}
	}
	return nil
}

// Next reads the generations and makes the body of the next reshape: from the root to the children,
// or back.
func (h *ReshapeHost) Next(ctx context.Context, c *Client) ([]byte, error) {
	inventories, allocations := object{}, object{}
	generations := map[string]int{}
	for i, provider := range append([]string{h.Root}, h.Children[:]...) {
		now, err := read[struct {
			Generation  int `json:"resource_provider_generation"`
			Allocations map[string]struct {
				Generation int `json:"consumer_generation"`
			}
		}](ctx, c, "/resource_providers/"+provider+"/allocations")
		if err != nil {
			return nil, err
		}
		next := object{}
		switch {
		case i == 0 && h.moved:
			next = vgpus(h.share() * len(h.Children))
		case i > 0 && !h.moved:
			next = vgpus(h.share())
		}
		inventories[provider] = object{"resource_provider_generation": now.Generation, "inventories": next}
		for consumer, a := range now.Allocations {
			generations[consumer] = a.Generation
		}
	}
	if len(generations) != len(h.Consumers) {
		return nil, fmt.Errorf("%d consumers have allocations on the host and its children, not %d",
			len(generations), len(h.Consumers))
	}
	for i, consumer := range h.Consumers {
		to := h.Root
		if !h.moved {
			to = h.Children[i%len(h.Children)]
		}
		allocations[consumer] = object{"allocations": allocation(to), "project_id": projectID, "user_id": userID,
			"consumer_generation": generations[consumer]}
	}
	return json.Marshal(object{"inventories": inventories, "allocations": allocations})
}

// Reshape sends what Next made.
func (h *ReshapeHost) Reshape(ctx context.Context, c *Client, body []byte) error {
	_, err := c.Send(ctx, http.MethodPost, "/reshaper", body)
	if err == nil {
		h.moved = !h.moved
	}
	return err
}
