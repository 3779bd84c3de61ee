// SPDX-License-Identifier: Apache-2.0

package cellclient_test

import (
	"context"
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestStreamOfAContextThatIsOver: it is an error, and no stream that does not exist.
func TestStreamOfAContextThatIsOver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := testproc.Try(cellclient.New(cellclient.Config{URL: "http://127.0.0.1:1"})).Or(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := c.OpenStream(ctx, "6a6f7f6e-0000-4000-8000-000000000001", cellwire.PurposeConsole, 0); s != nil ||
		!errors.Is(err, context.Canceled) {
		t.Errorf("OpenStream of a cancelled context: got %v, %v, want context.Canceled", s, err)
	}
}
