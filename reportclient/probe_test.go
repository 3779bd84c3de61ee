// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestProbeNoticesOutage: a tree within the refresh interval costs no request, but a TCP probe
// notices an outage, and the cached tree stays.
func TestProbeNoticesOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	var away bool
	probes, requests := 0, &counter{}
	client := newClient(t, url, func(c *reportclient.Config) {
		c.Transport, c.Authorize = requests, authorized
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			probes++
			if away {
				return nil, errors.New("connection refused")
			}
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	ok(t, apply(t, client, firstTree...))
	requests.since()
	for range 3 {
		ok(t, apply(t, client))
	}
	want(t, requests)
	testproc.Equal(t, probes, 3, "%d probes in three steady passes")
	away = true
	if _, err := client.Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrUnavailable) {
		t.Errorf("the outage is not noticed: %v", err)
	}
	if tree, _ := client.Known(id(1)); tree == nil {
		t.Error("the cached tree is forgotten")
	}
	away = false
	ok(t, apply(t, client))
	want(t, requests)
}

// TestEndpointMoves: where Placement is comes late, and changes. The server there is checked again,
// and so is the tree; the TCP probe goes there too.
func TestEndpointMoves(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	url := bundled(t, placement.Auth{Strategy: placement.NoAuth})
	requests := &counter{}
	var where string
	unknown := reportclient.ErrUnavailable
	var probed []string
	client := newClient(t, "", func(c *reportclient.Config) {
		c.Transport, c.Authorize = requests, authorized
		c.Endpoint = func(context.Context) (string, error) { return where, unknown }
		c.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			probed = append(probed, address)
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	})
	if _, err := client.Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrUnavailable) {
		t.Errorf("before it is known: %v", err)
	}
	if client.Endpoint() != "" {
		t.Error("the endpoint is known before the catalog was read")
	}
	want(t, requests)
	where, unknown = url+"/", nil
	ok(t, apply(t, client, firstTree...))
	ok(t, apply(t, client))
	requests.since()

	moved := strings.Replace(url, "127.0.0.1", "[::ffff:127.0.0.1]", 1)
	where = moved
	ok(t, apply(t, client))
	want(t, requests, "GET /", "GET /resource_providers")
	ok(t, apply(t, client))
	want(t, requests)
	testproc.Equal(t, client.Endpoint(), moved, "endpoint %q")
	host := func(url string) string { return strings.TrimPrefix(url, "http://") }
	testproc.Samef(t, cmp.Diff([]string{host(url), host(moved)}, probed), "probes")
	where = "nonsense"
	testproc.Try(client.Tree(t.Context(), id(1), "cn1")).ErrorHas(t, `"nonsense"`, "an invalid endpoint: %v")
}
