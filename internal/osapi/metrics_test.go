// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWatchCertificates: the page has the end of the certificate that is in the file now.
func TestWatchCertificates(t *testing.T) {
	dir := t.TempDir()
	ca := testproc.Try(pki.InitAuthority(dir, "ca", time.Now())).Or(t)
	file := filepath.Join(dir, pki.CACertificateFile)
	page := NewMetricsPage("test_", "is tested")
	page.WatchCertificates("", file, file)
	shows := func(want string) {
		t.Helper()
		w := httptest.NewRecorder()
		page.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if line := fmt.Sprintf("compute_agent_service_certificate_expiry_time_seconds{file=%q} %s\n", file, want); strings.Count(w.Body.String(), line) != 1 {
			t.Errorf("no line %q in\n%s", line, w.Body)
		}
	}
	shows(fmt.Sprintf("%v", float64(ca.Certificate().NotAfter.Unix())))
	testproc.Check(t, os.Remove(file))
	shows("0")
}
