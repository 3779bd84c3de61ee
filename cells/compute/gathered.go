// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"errors"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

// errNoServer says that a cell does not know a server.
var errNoServer = errors.New("the cell has no such server")

// cellReader is what the reads of servers need of the cells.
type cellReader interface {
	// list lists one page of the servers of cells, all asked at once. use may be
	// called several times, and the last call counts: see mergeServersEarly.
	list(ctx context.Context, cells []apidb.Cell, q cellwire.ServerQuery, use func(mergedServers) error) error
	// show is one server. Errors wrap errNoServer or gather.ErrDown.
	show(ctx context.Context, cell apidb.Cell, uuid string) (cellwire.Server, error)
}

// gatherReader asks cells through a gatherer.
type gatherReader struct{ g *gather.Gatherer }

func (c gatherReader) list(
	ctx context.Context, cells []apidb.Cell, q cellwire.ServerQuery, use func(mergedServers) error,
) error {
	return mergeServersEarly(ctx, c.g, cells, q, use)
}

func (c gatherReader) show(ctx context.Context, cell apidb.Cell, uuid string) (cellwire.Server, error) {
	server, err := gather.One(ctx, c.g, cell,
		func(ctx context.Context, client *cellclient.Client) (cellwire.Server, error) {
			server, err := client.Server(ctx, uuid)
			if cellclient.IsNotFound(err) {
				return cellwire.Server{}, err
			}
			return server, cellclient.AsFailure(err)
		})
	if cellclient.IsNotFound(err) {
		return cellwire.Server{}, errNoServer
	}
	return server, err
}
