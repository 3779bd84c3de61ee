// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/compute-agent/compute-agent/reportclient"
)

// TestProbeNoticesOutage: a tree within the refresh interval costs no request, but a TCP probe
// notices an outage, and the cached tree stays.
func TestProbeNoticesOutage(t *testing.T) {
	onBoth(t, func(t *testing.T, url string) {
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
		if probes != 3 {
			t.Errorf("%d probes in three steady passes", probes)
		}
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
	})
}
