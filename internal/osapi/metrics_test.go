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

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWatchDenied: the page says whether all hosts are refused, as the list is now.
func TestWatchDenied(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	file := filepath.Join(t.TempDir(), "denied")
	shows := func(denied *pki.DenyFile, want string) {
		t.Helper()
		page := NewMetricsPage("test_", "is tested")
		page.WatchDenied(denied)
		w := httptest.NewRecorder()
		page.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		const name = "\ncompute_agent_deny_list_usable "
		if text := w.Body.String(); want == "" && strings.Contains(text, name) || !strings.Contains(text, name+want) &&
			want != "" || strings.Contains(text, "deny_list_age") {
			t.Errorf("no line with %q in\n%s", want, text)
		}
	}
	shows(nil, "")
	testproc.Check(t, pki.CreateDenyFile(file))
	shows(testproc.Try(pki.OpenDenyFile(file, zerolog.Nop())).Or(t), "1\n")
	shows(testproc.Try(pki.OpenDenyFile(file, zerolog.Nop())).Or(t).RefuseAfter(time.Nanosecond), "0\n")
	testproc.Check(t, os.Truncate(file, 0))
	shows(testproc.Try(pki.OpenDenyFile(file, zerolog.Nop())).Or(t), "0\n")
}

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
		if line := fmt.Sprintf("compute_agent_service_certificate_expiry_time_seconds{file=%q} %s\n",
			file, want); strings.Count(w.Body.String(), line) != 1 {
			t.Errorf("no line %q in\n%s", line, w.Body)
		}
	}
	shows(fmt.Sprintf("%v", float64(ca.Certificate().NotAfter.Unix())))
	testproc.Check(t, os.Remove(file))
	shows("0")
}
