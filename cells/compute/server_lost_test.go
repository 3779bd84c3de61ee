// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestServerMissingInItsCellIsLogged: owners get the 404 that Nova has, and the log says that it
// ought to be there: once a minute for each cell, and not of a server that is deleted.
func TestServerMissingInItsCellIsLogged(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	now := start
	c.api.service.Now = func() time.Time { return now }
	lost, other, deleted := c.has(1, server(1, "lost")), c.has(2, server(2, "other")), c.has(1, server(3, "deleted"))
	testproc.Check(t, c.store.SetQueued(context.Background(), map[string]bool{deleted.UUID: true}))
	c.cell(1).servers, c.cell(2).servers = nil, nil
	said := func() int { return strings.Count(c.logged.String(), "does not have it") }
	for _, step := range []struct {
		uuid string
		pass time.Duration
		said int
	}{{deleted.UUID, 0, 0}, {lost.UUID, 0, 1}, {lost.UUID, time.Minute - 1, 1}, {other.UUID, 0, 2}, {lost.UUID, 1, 3}} {
		now = now.Add(step.pass)
		got := c.ask(member, "2.69", "/v2.1/servers/"+step.uuid)
		if got.status != http.StatusNotFound || strings.Contains(got.text, "cell") || said() != step.said {
			t.Errorf("%+v: %d %s, said %d times", step, got.status, got.text, said())
		}
	}
	if log := c.logged.String(); !strings.Contains(log, lost.UUID) || !strings.Contains(log, `"cell":"cell1"`) ||
		!strings.Contains(log, "cells manage list") {
		t.Errorf("the log does not say which, where and what to do:\n%s", log)
	}
}
