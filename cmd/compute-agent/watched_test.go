// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMetricsAddress: without a host it is loopback; one that is unavailable is an error that names
// the key, since it is configured; nothing answers there after the end.
func TestMetricsAddress(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for key, watch := range map[string]func(*testing.T, string) watched{
		"placement_metrics.listen": func(t *testing.T, listen string) watched {
			var cfg config.Config
			cfg.Agent.RuntimeDir, cfg.PlacementMetrics.Listen = t.TempDir(), listen
			return watchPlacement(&cfg, newServer(t))
		},
		"cell.metrics_listen": func(t *testing.T, listen string) watched {
			return watchCell(t.TempDir(), "cell1", listen, newWatchedCell(t))
		},
	} {
		t.Run(key, func(t *testing.T) {
			taken := testproc.Listen(t)
			address := taken.Addr().String()
			_, port, err := net.SplitHostPort(address)
			testproc.Check(t, err)
			w := watch(t, ":"+port)
			testproc.Try(serveWatched(t.Context(), w, zerolog.Nop())).ErrorHas(t, key, "a taken address: %v")
			testproc.Check(t, taken.Close())
			stop := testproc.Try(serveWatched(t.Context(), w, zerolog.Nop())).Or(t)
			if !strings.Contains(page(t, "tcp", address, "/metrics"), "# TYPE ") {
				t.Error("there are no metrics")
			}
			stop()
			if _, err := net.Dial("tcp", address); err == nil {
				t.Error("the address answers after the end")
			}
		})
	}
}

func TestOnLoopback(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for given, want := range map[string]string{":9808": "127.0.0.1:9808", "192.0.2.1:9808": "192.0.2.1:9808", "[::1]:9808": "[::1]:9808", "localhost:1": "localhost:1"} {
		if got := onLoopback(given); got != want {
			t.Errorf("metrics for %s are served on %s, not on %s", given, got, want)
		}
	}
}
