// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
)

// cellPatience is how long a command waits for the cell.
const cellPatience = 10 * time.Second

// cellServers are the servers that the cell of a host has there, or moves from there or to there.
type cellServers struct {
	items map[string]cellwire.WorkItem // by uuid
	// unknown is why that is not known, or "".
	unknown string
	// present and former say by which names the cell knows the host; own says that it only answers
	// about present, because the credentials are those of this name.
	present, former, own bool
}

// serversOf asks the cell of [cell_client] for the servers of a host, which may have had another,
// former name, or "". There are none without a cell.
func serversOf(ctx context.Context, cfg *config.Config, log zerolog.Logger, name, former string) (out cellServers) {
	out.items = map[string]cellwire.WorkItem{}
	if cfg.CellClient.URL == "" {
		return out
	}
	settings, err := access.CellOf(cfg.CellClient).Cell(cfg.CellClient.URL, log)
	var client *cellclient.Client
	if err == nil {
		client, err = cellclient.New(settings)
	}
	if err != nil {
		out.unknown = "cell_client.url: " + err.Error()
		return out
	}
	defer client.CloseIdle()
	ctx, cancel := context.WithTimeout(ctx, cellPatience)
	defer cancel()
	ask := func(host string) (known bool, err error) {
		err = out.add(ctx, client, host)
		if cellclient.IsNotFound(err) {
			return false, nil // there are no servers of a host that the cell does not have
		}
		return err == nil, err
	}
	out.present, err = ask(name)
	if former != "" && former != name {
		var before error
		out.former, before = ask(former)
		switch {
		case before != nil:
			out.own = out.present && cellclient.IsForbidden(before)
			err = before
		case out.former && cellclient.IsForbidden(err):
			err = nil // the credentials are still those of the former name, by which the cell knows the host
		}
	}
	if err != nil {
		out.unknown = err.Error()
	}
	return out
}

// add adds the servers of a host, page by page.
func (s cellServers) add(ctx context.Context, client *cellclient.Client, host string) error {
	var revision int64
	for epoch, more := "", true; more; {
		work, err := client.Work(ctx, host, revision, epoch, 0)
		if err != nil {
			return err
		}
		for _, item := range work.Items {
			s.items[item.Server.UUID] = item
		}
		more = work.More && work.Revision > revision
		revision, epoch = work.Revision, work.Epoch
	}
	return nil
}

// onNode are those that are on a node, as texts for people.
func (s cellServers) onNode(node string) (out []string) {
	for _, uuid := range slices.Sorted(maps.Keys(s.items)) {
		item := s.items[uuid]
		at := []string{item.Server.NodeUUID}
		if m := item.Migration; m != nil {
			at = []string{m.SourceNodeUUID, m.DestNodeUUID}
		}
		if slices.Contains(at, node) {
			out = append(out, fmt.Sprintf("%s (%s)", uuid, item.Server.Name))
		}
	}
	return out
}

// count returns the numbers of the servers and of those consumers that are neither servers nor
// their migrations.
func (s cellServers) count(consumers map[string]bool) (servers, others int) {
	migrations := map[string]bool{}
	for _, item := range s.items {
		if item.Migration != nil {
			migrations[item.Migration.UUID] = true
		}
	}
	for consumer := range consumers {
		if _, server := s.items[consumer]; !server && !migrations[consumer] {
			others++
		}
	}
	return len(s.items), others
}

// names are the servers, as texts for people; the first of many.
func (s cellServers) names() string {
	var out []string
	for _, uuid := range slices.Sorted(maps.Keys(s.items)) {
		if len(out) == maxHeldNamed {
			out = append(out, fmt.Sprintf("and %d more", len(s.items)-maxHeldNamed))
			break
		}
		out = append(out, fmt.Sprintf("%s (%s)", uuid, s.items[uuid].Server.Name))
	}
	return strings.Join(out, ", ")
}
