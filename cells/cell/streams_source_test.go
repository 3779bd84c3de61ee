// SPDX-License-Identifier: Apache-2.0

package cell_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// arriving is a store in which the first server moves: what its destination has to do is item.
type arriving struct {
	celldb.Store
	host string
	item *cellwire.WorkItem
}

func (a *arriving) Work(
	ctx context.Context, host string, after int64, epoch string, m celldb.Moment,
) (cellwire.Work, bool, error) {
	if host == a.host && a.item != nil {
		return cellwire.Work{Epoch: epoch, Items: []cellwire.WorkItem{*a.item}}, true, nil
	}
	return a.Store.Work(ctx, host, after, epoch, m)
}

// TestStreamsToTheSourceOfAMigration: only the host at which a server arrives opens one, to the
// source and no other host.
func TestStreamsToTheSourceOfAMigration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newStreaming(t, 0)
	store := &arriving{Store: s.store, host: "h2"}
	c, err := cell.New(cell.Config{Name: "cell1", Store: store, Auth: cell.NoAuth(), ServiceDownTime: time.Hour,
		StreamWait: time.Minute, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	web := httptest.NewServer(c)
	t.Cleanup(func() { c.CloseStreams(); web.Close() })
	s.urls[0] = web.URL
	client := s.client(web.URL)
	offers := make(chan cellwire.StreamOffer, 1)
	s.agent(0, func(o cellwire.StreamOffer, end *cellwire.Stream) {
		offers <- o
		shout(o, end)
	})
	refused := func(host string, want cellwire.Code) {
		t.Helper()
		_, err := client.OpenSource(t.Context(), host, sid(1))
		var got *cellwire.Error
		if !errors.As(err, &got) || got.Code != want {
			t.Errorf("host %s: %v", host, err)
		}
	}
	migration := &cellwire.Migration{UUID: sid(9), ServerUUID: sid(1), Type: cellwire.MigrationCold,
		SourceHost: "h1", DestHost: "h2"}
	refused("h1", cellwire.CodeNotFound)
	store.item = &cellwire.WorkItem{Want: cellwire.WantPresent,
		Server: cellwire.Server{UUID: sid(1)}, Migration: migration}
	refused("h2", cellwire.CodeNotFound)
	store.item.Want = cellwire.WantArriving
	refused("h1", cellwire.CodeNotFound)
	store.item.Server.UUID = sid(2)
	refused("h2", cellwire.CodeNotFound)
	store.item.Server.UUID = sid(1)
	migration.Type = cellwire.MigrationEvacuation
	refused("h2", cellwire.CodeNotFound)
	migration.Type = cellwire.MigrationCold

	end := testproc.Try(client.OpenSource(t.Context(), "h2", sid(1))).Or(t)
	defer func() { _ = end.Close() }()
	testproc.Try(io.WriteString(end, "disk")).Or(t)
	testproc.Check(t, end.CloseWrite())
	if got, err := io.ReadAll(end); err != nil || string(got) != "DISK" {
		t.Errorf("the answer of the source: got %q, %v, want DISK", got, err)
	}
	if o := <-offers; o.Purpose != cellwire.PurposeDisk || o.UUID != sid(1) {
		t.Errorf("the source was offered %+v", o)
	}
	_, err = client.OpenStream(t.Context(), sid(1), cellwire.PurposeDisk, 0)
	var got *cellwire.Error
	if !errors.As(err, &got) || got.Status != http.StatusBadRequest {
		t.Errorf("the compute API opened one: %v", err)
	}
}
