// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"context"
	"time"
)

// followInterval is how long a host may wait for a change that another process of the cell made.
const followInterval = 500 * time.Millisecond

// WatchChanges wakes the requests that wait for changes which other processes made in the same
// database, until the context ends. A cell that is alone on its database does not need it. While
// the database cannot be read it does nothing: each request says why.
func (c *Cell) WatchChanges(ctx context.Context) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for revision := int64(0); ctx.Err() == nil; {
		revision = c.wakeChanged(ctx, revision)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// wakeChanged wakes the hosts with changes after a revision, and returns the revision until which
// it did. 0 is not to know any; then, and when an older copy of the database was restored, all
// hosts are woken.
func (c *Cell) wakeChanged(ctx context.Context, after int64) int64 {
	if after == 0 {
		info, err := c.config.Store.Info(ctx)
		if err != nil {
			return 0
		}
		c.broadcasts.notifyAll() // a change between a host's look and this one would be missed
		return info.Revision
	}
	hosts, revision, err := c.config.Store.Changes(ctx, after)
	switch {
	case err != nil:
		return after
	case revision < after:
		return 0
	}
	for _, host := range hosts {
		c.broadcasts.notify(host)
	}
	return revision
}

// forgetInterval is the time between two passes of ForgetNodes.
const forgetInterval = time.Minute

// ForgetNodes forgets nodes that hosts do not report any more, now and then, until the context
// ends.
func (c *Cell) ForgetNodes(ctx context.Context) {
	ticker := time.NewTicker(forgetInterval)
	defer ticker.Stop()
	for {
		n, err := c.config.Store.ForgetNodes(ctx, c.moment())
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && c.logLimiter.Allow("forget"):
			c.config.Logger.Warn().Err(err).Msg("Could not forget nodes that hosts do not report any more. Retrying.")
		case n > 0:
			c.config.Logger.Debug().Int("rows", n).Msg("Updated nodes and claims that hosts do not report any more.")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
