// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMetricsAddress: a taken address is an error that names the key, and a free one is on loopback
// and answers until the end.
func TestMetricsAddress(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	taken := testproc.Listen(t)
	address := taken.Addr().String()
	_, port, err := net.SplitHostPort(address)
	testproc.Check(t, err)
	serve := func(ctx context.Context, l net.Listener) error {
		context.AfterFunc(ctx, func() { _ = l.Close() })
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			testproc.NoError(t, c.Close())
		}
		return nil
	}
	a := Admin{
		Service: "It", Socket: filepath.Join(t.TempDir(), "it.sock"),
		Serve:          func(ctx context.Context, l *KeySocket) error { return serve(ctx, l) },
		MetricsAddress: ":" + port, Key: "it.metrics_listen", ServeMetrics: serve,
	}
	testproc.Try(a.Start(t.Context(), zerolog.Nop())).ErrorHas(t, "it.metrics_listen", "a taken address: %v")
	testproc.Check(t, taken.Close())
	stop := testproc.Try(a.Start(t.Context(), zerolog.Nop())).Or(t)
	c := testproc.Try(net.Dial("tcp", address)).Or(t)
	testproc.Check(t, c.Close())
	stop()
	if _, err := net.Dial("tcp", address); err == nil {
		t.Error("the address answers after the end")
	}
}

func TestOnLoopback(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for given, want := range map[string]string{":9808": "127.0.0.1:9808", "192.0.2.1:9808": "192.0.2.1:9808",
		"[::1]:9808": "[::1]:9808", "localhost:1": "localhost:1"} {
		if got := onLoopback(given); got != want {
			t.Errorf("metrics for %s are served on %s, not on %s", given, got, want)
		}
	}
}
