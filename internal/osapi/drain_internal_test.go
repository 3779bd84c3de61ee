// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDrainWaitsForTheHandler: the end of a server waits until the first request of a connection
// has reached the handler. Before that net/http drops it, if the server has ended meanwhile.
func TestDrainWaitsForTheHandler(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, answered := range map[string]func(d *drain, server *http.Server, c net.Conn){
		"handled": func(_ *drain, server *http.Server, c net.Conn) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			server.Handler.ServeHTTP(httptest.NewRecorder(), r.WithContext(server.ConnContext(r.Context(), c)))
		},
		"closed": func(d *drain, _ *http.Server, c net.Conn) { d.changed(c, http.StateClosed) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				handled := 0
				server := &http.Server{
					Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ })}
				d := newDrain(server)
				c, client := net.Pipe()
				defer func() { _, _ = c.Close(), client.Close() }()
				d.changed(c, http.StateNew)
				drained := false
				go func() {
					d.wait(t.Context())
					drained = true
				}()
				d.changed(c, http.StateActive)
				synctest.Wait()
				if drained {
					t.Fatal("the end does not wait for a request that was read, and may be dropped")
				}
				answered(d, server, c)
				synctest.Wait()
				if !drained || name == "handled" != (handled == 1) {
					t.Errorf("%s: the end waits: %t; %d requests were handled", name, !drained, handled)
				}
			})
		})
	}
}
