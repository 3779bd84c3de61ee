// SPDX-License-Identifier: Apache-2.0

package access

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
	"github.com/compute-agent/compute-agent/internal/config"
)

// cellPatience is how long a command waits for the cell.
const cellPatience = 10 * time.Second

// maxNamed bounds how many servers a text names.
const maxNamed = 10

// CellServers are the servers that the cell of a host has there, or moves from there or to there.
type CellServers struct {
	Items map[string]cellwire.WorkItem // by uuid
	// Unknown is why that is not known, or "".
	Unknown string
	// Present and Former say by which names the cell knows the host; Own says that it only answers
	// about Present, because the credentials are those of this name.
	Present, Former, Own bool
}

// ServersOf asks the cell of [cell_client] for the servers of a host, which may have had another,
// former name, or "". There are none without a cell.
func ServersOf(ctx context.Context, c config.CellClient, log zerolog.Logger, name, former string) (out CellServers) {
	out.Items = map[string]cellwire.WorkItem{}
	if c.URL == "" {
		return out
	}
	settings, err := CellOf(c).Cell(c.URL, log)
	var client *cellclient.Client
	if err == nil {
		client, err = cellclient.New(settings)
	}
	if err != nil {
		out.Unknown = "cell_client.url: " + err.Error()
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
	out.Present, err = ask(name)
	if former != "" && former != name {
		var before error
		out.Former, before = ask(former)
		switch {
		case before != nil:
			out.Own = out.Present && cellclient.IsForbidden(before)
			err = before
		case out.Former && cellclient.IsForbidden(err):
			err = nil // the credentials are still those of the former name, by which the cell knows the host
		}
	}
	if err != nil {
		out.Unknown = err.Error()
	}
	return out
}

// add adds the servers of a host, page by page.
func (s CellServers) add(ctx context.Context, client *cellclient.Client, host string) error {
	var revision int64
	for epoch, more := "", true; more; {
		work, err := client.Work(ctx, host, revision, epoch, 0)
		if err != nil {
			return err
		}
		for _, item := range work.Items {
			s.Items[item.Server.UUID] = item
		}
		more = work.More && work.Revision > revision
		revision, epoch = work.Revision, work.Epoch
	}
	return nil
}

// OnNode describes the servers that are on a node, or move from it or to it, for people.
func (s CellServers) OnNode(node string) (out []string) {
	for _, uuid := range slices.Sorted(maps.Keys(s.Items)) {
		item := s.Items[uuid]
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

// Count returns the numbers of the servers and of those consumers that are neither servers nor
// their migrations.
func (s CellServers) Count(consumers map[string]bool) (servers, others int) {
	migrations := map[string]bool{}
	for _, item := range s.Items {
		if item.Migration != nil {
			migrations[item.Migration.UUID] = true
		}
	}
	for consumer := range consumers {
		if _, server := s.Items[consumer]; !server && !migrations[consumer] {
			others++
		}
	}
	return len(s.Items), others
}

// Names are the servers, as texts for people; the first of many.
func (s CellServers) Names() string {
	var out []string
	for _, uuid := range slices.Sorted(maps.Keys(s.Items)) {
		if len(out) == maxNamed {
			out = append(out, fmt.Sprintf("and %d more", len(s.Items)-maxNamed))
			break
		}
		out = append(out, fmt.Sprintf("%s (%s)", uuid, s.Items[uuid].Server.Name))
	}
	return strings.Join(out, ", ")
}
