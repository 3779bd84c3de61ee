// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestIdentityFindings: a certificate that was not renewed is reported at half of its life, and as
// critical before it ends.
func TestIdentityFindings(t *testing.T) {
	day := func(left time.Duration) Identity {
		return Identity{Host: "cn1", Since: noon.Add(left - 24*time.Hour), Expires: noon.Add(left), Renews: true}
	}
	year := func(left time.Duration) Identity {
		return Identity{Host: "cn1", Since: noon.Add(left - 365*24*time.Hour), Expires: noon.Add(left)}
	}
	with := func(id Identity, change func(*Identity)) Identity { change(&id); return id }
	for name, c := range map[string]struct {
		identity Identity
		want     []string
	}{
		"a new one":  {day(24 * time.Hour), []string{}},
		"at a third": {day(16 * time.Hour), []string{}},
		"a failure is retried": {with(day(15*time.Hour),
			func(id *Identity) { id.Error = "connection refused" }), []string{}},
		"at half": {with(day(11*time.Hour), func(id *Identity) { id.Error = "connection refused" }),
			[]string{"agent certificate-expires: valid until 2030-01-02T23:00:00Z: connection refused"}},
		"near the end": {day(2 * time.Hour),
			[]string{"agent certificate-expired: valid until 2030-01-02T14:00:00Z"}},
		"expired": {day(-time.Minute),
			[]string{"agent certificate-expired: valid until 2030-01-02T11:59:00Z"}},
		"refused": {with(day(11*time.Hour),
			func(id *Identity) { id.Error, id.Refused = "evicted", true }), []string{"agent renewal-refused: evicted"}},
		"refused, near the end": {with(day(time.Hour), func(id *Identity) { id.Error, id.Refused = "evicted", true }),
			[]string{"agent certificate-expired: valid until 2030-01-02T13:00:00Z: evicted",
				"agent renewal-refused: evicted"}},
		"renewed elsewhere": {with(day(20*time.Hour),
			func(id *Identity) { id.Error, id.Refused, id.RenewedElsewhere = "another holder", true, true }),
			[]string{"agent certificate-renewed-elsewhere: another holder"}},
		"a node is missing": {with(day(24*time.Hour), func(id *Identity) { id.RefusedNodes = []string{"Node u1."} }),
			[]string{"agent node-not-enrolled:  Node u1."}},
		"it cannot be read": {Identity{Error: "identity.pem: no such file"},
			[]string{"agent certificate-expired: identity.pem: no such file"}},
		"of the site": {year(8 * 24 * time.Hour), []string{}},
		"of the site, a week": {year(6 * 24 * time.Hour),
			[]string{"agent certificate-expires: valid until 2030-01-08T12:00:00Z"}},
		"of the site, a day": {year(23 * time.Hour),
			[]string{"agent certificate-expired: valid until 2030-01-03T11:00:00Z"}},
	} {
		f := well()
		f.Status.Identity = &c.identity
		testproc.Samef(t, cmp.Diff(c.want, brief(findings(f))), "%s", name)
	}
}
