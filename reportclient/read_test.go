// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRefreshInterval: a tree is believed for the interval, less up to a tenth by chance, and not
// longer. With an interval of 0 it is believed forever.
func TestRefreshInterval(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	for _, c := range []struct {
		interval time.Duration
		jitter   float64
		due      time.Duration
	}{
		{100 * time.Second, 0, 100 * time.Second},
		{100 * time.Second, 0.5, 95 * time.Second},
		{100 * time.Second, 0.9, 91 * time.Second},
		{0, 0.9, 1000 * time.Hour},
	} {
		requests, now := &counter{}, &clock{now: time.Now()}
		client := newClient(t, url, func(cfg *reportclient.Config) {
			cfg.Transport, cfg.Authorize, cfg.Now, cfg.RefreshInterval = requests, authorized, now.Now, c.interval
			cfg.Jitter = func() float64 { return c.jitter }
		})
		ok(t, apply(t, client, inventory(1, "VCPU", providertree.Inventory{Total: 8})))
		requests.since()
		now.pass(c.due - 1)
		ok(t, apply(t, client))
		want(t, requests)
		now.pass(1)
		ok(t, apply(t, client))
		if looked := len(requests.since()) > 0; looked != (c.interval > 0) {
			t.Errorf("interval %v, jitter %v: after %v it looked: %t", c.interval, c.jitter, c.due, looked)
		}
	}
}

// TestProviderChangesWhileRead: what is read must be of one generation. It is read again if another
// client wrote meanwhile, at most twice; then it is a conflict.
func TestProviderChangesWhileRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for changes := range 4 {
		url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
		writer, _, _ := observed(t, url)
		ok(t, apply(t, writer, inventory(1, "VCPU", providertree.Inventory{Total: 8})))
		client, requests, _ := observed(t, url)
		written := 0
		requests.fail = func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/traits") && written < changes {
				written++
				ok(t, apply(t, writer, inventory(1, "VCPU", providertree.Inventory{Total: int64(8 + written)})))
			}
			return nil, nil
		}
		tree, err := client.Tree(t.Context(), id(1), "cn1")
		if changes == 3 {
			if !errors.Is(err, reportclient.ErrConflict) ||
				!strings.Contains(err.Error(), "it was written 3 times while it was read") {
				t.Errorf("got %v", err)
			}
			continue
		}
		ok(t, err)
		if inv, _ := tree.Inventory(id(1), "VCPU"); inv.Total != int64(8+changes) {
			t.Errorf("after %d changes the total is %d", changes, inv.Total)
		}
		if read := len(requests.since()); read != 2+3*(1+changes) {
			t.Errorf("%d requests after %d changes", read, changes)
		}
	}
}

var (
	hyphens   = regexp.MustCompile(`"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"`)
	noHyphens = regexp.MustCompile(`\b([0-9a-f]{8})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{4})([0-9a-f]{12})\b`)
)

// otherNotation writes the uuids of the answers without hyphens, and takes them so in paths.
type otherNotation struct{ next http.RoundTripper }

func (o otherNotation) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Path = noHyphens.ReplaceAllString(r.URL.Path, "$1-$2-$3-$4-$5")
	resp, err := o.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	body = hyphens.ReplaceAllFunc(body, func(uuid []byte) []byte { return bytes.ReplaceAll(uuid, []byte("-"), nil) })
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

// TestNotationOfUUIDs: however Placement writes the uuids of providers and aggregates, those that
// the client gives are canonical, and what is the same is found to be so.
func TestNotationOfUUIDs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Authenticator: service})
	_, _, _, _ = gpus.prepare(t, url)
	client := newClient(t, url, func(c *reportclient.Config) {
		c.Transport, c.Authorize = otherNotation{http.DefaultTransport}, authorized
	})
	for _, known := range []bool{false, true} { // with the tree unread, and read
		before := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
		held := before[strings.ReplaceAll(id(alice), "-", "")].Resources
		testproc.Samef(t, cmp.Diff(gpus.claims[alice].byUUID(), held), "known %t: allocations", known)
		tree := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
		testproc.Samef(t, cmp.Diff([]string{id(cn1), id(nfs)}, tree.Roots()), "roots")
	}
	if uuid, found, err := client.FindByName(t.Context(), "nfs"); err != nil || !found || uuid != id(nfs) {
		t.Errorf("found by name: %s, %t, %v", uuid, found, err)
	}
	held := testproc.Try(client.Holdings(t.Context(), id(cn1))).Or(t)
	if held.Providers[0].UUID != id(cn1) || len(held.Consumers) != 3 ||
		held.Providers[0].Allocations[id(bob)]["VGPU"] != 2 {
		t.Errorf("holdings: %+v", held)
	}
	// aggregates are compared before they are written
	ok(t, apply(t, client, func(t *testing.T, tr *providertree.Tree) {
		testproc.Try(tr.AddAggregates(id(cn1), id(unknown))).Or(t)
	}))
}

// TestInvalidSharingProvider: one that no tree can hold is left out with a warning, and the others
// are shown.
func TestInvalidSharingProvider(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	sharedStorage(t, url)
	writer, _, _ := observed(t, url)
	ok(t, apply(t, writer, joinStorage))
	for _, name := range []string{"nfs", "cn1"} { // the second is the node's own
		var log bytes.Buffer
		requests := &counter{fail: func(r *http.Request) (*http.Response, error) {
			if !strings.Contains(r.URL.RawQuery, "member_of") {
				return nil, nil
			}
			return answer(http.StatusOK,
				fmt.Sprintf(
					`{"resource_providers": [{"uuid": %q, "name": %q, "generation": 3, "parent_provider_uuid": null}]}`,
					id(nfs), name)), nil
		}}
		client := newClient(t, url, func(c *reportclient.Config) {
			c.Config = placementclient.Config{URL: url,
				Transport: requests, Authorize: authorized, Logger: zerolog.New(&log).Level(zerolog.InfoLevel)}
		})
		tree := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
		valid := name == "nfs"
		if slices.Contains(tree.Roots(), id(nfs)) != valid ||
			strings.Contains(log.String(), "Ignoring an invalid sharing provider") == valid {
			t.Errorf("named %s: roots %v, log %s", name, tree.Roots(), log.String())
		}
	}
}
