// SPDX-License-Identifier: Apache-2.0

package control

import "context"

// Tree returns the provider trees of the agent's nodes.
func (c *Client) Tree(ctx context.Context, opts TreeOptions) (Tree, error) {
	return get[Tree](ctx, c, TreePath(opts))
}

// Plan returns what the next pass would write; with reshape, also what the next start would move.
func (c *Client) Plan(ctx context.Context, reshape bool) (PlanView, error) {
	return get[PlanView](ctx, c, PlanPath(reshape))
}
