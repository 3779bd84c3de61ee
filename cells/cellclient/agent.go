// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// workSlack is how much longer than it was asked to a cell may take for an answer to a long poll.
const workSlack = 10 * time.Second

// Report registers a host, and shows life.
func (c *Client) Report(ctx context.Context, host string, report cellwire.HostReport) (cellwire.HostState, error) {
	path, err := pathOf("/v1/hosts/", host, "")
	if err != nil {
		return cellwire.HostState{}, err
	}
	return fetch(ctx, c, http.MethodPut, path, report, func(s *cellwire.HostState) error { return checkEpoch(s.Epoch) })
}

// Work waits for desired state of a host that is newer than the revision after of the epoch, at
// most for wait (in whole seconds, rounded up) and a little.
func (c *Client) Work(
	ctx context.Context, host string, after int64, epoch string, wait time.Duration,
) (cellwire.Work, error) {
	values := url.Values{"after": {strconv.FormatInt(after, 10)}, "epoch": {epoch}, "wait": {seconds(wait)}}
	path, err := pathOf("/v1/hosts/", host, "/work?"+values.Encode())
	if err != nil {
		return cellwire.Work{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, 0)+workSlack)
	defer cancel()
	return fetch(ctx, c, http.MethodGet, path, nil, func(w *cellwire.Work) error { return checkEpoch(w.Epoch) })
}

// NodeReporter asks which other host reports a node that this one reported before.
func (c *Client) NodeReporter(ctx context.Context, host, node string) (cellwire.NodeReporter, error) {
	path, err := pathOf("/v1/hosts/", host, "/nodes/"+url.PathEscape(node))
	if err != nil {
		return cellwire.NodeReporter{}, err
	}
	return fetch(ctx, c, http.MethodGet, path, nil, func(r *cellwire.NodeReporter) error {
		if r.UUID != node {
			return broken("an answer about node %s to a question about %s", r.UUID, node)
		}
		return nil
	})
}

// Reports sends the actual state of a host's servers to its cell: at most [cellwire.MaxReports].
// The answer has the outcome of each.
func (c *Client) Reports(ctx context.Context, host string, reports []cellwire.Report) (cellwire.ReportsAnswer, error) {
	path, err := pathOf("/v1/hosts/", host, "/reports")
	if err != nil {
		return cellwire.ReportsAnswer{}, err
	}
	return fetch(ctx, c, http.MethodPost, path, cellwire.Reports{Reports: reports},
		func(a *cellwire.ReportsAnswer) error {
			if len(a.Refused) != len(reports) {
				return broken("an answer about %d reports to %d", len(a.Refused), len(reports))
			}
			return nil
		})
}

// checkEpoch checks that an answer says which database it is from: every cell's does, and hardly
// anything else's.
func checkEpoch(epoch string) error {
	if epoch == "" {
		return broken("an answer without an epoch: is it a cell?")
	}
	return nil
}
