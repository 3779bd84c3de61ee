// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"bytes"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestWarningOfExpiry: of a certificate with a week left, or a third of its life if that is
// shorter: one of a day is not old from the start.
func TestWarningOfExpiry(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		life, left time.Duration
		warned     bool
	}{
		"a day, new":                {day, day, false},
		"a day, at half":            {day, 12 * time.Hour, false},
		"a day, less than a third":  {day, 8*time.Hour - time.Second, true},
		"90 days, two weeks left":   {90 * day, 14 * day, false},
		"90 days, more than a week": {90 * day, 7*day + time.Second, false},
		"90 days, less than a week": {90 * day, 7*day - time.Second, true},
	} {
		var log bytes.Buffer
		certificate := &x509.Certificate{NotBefore: now.Add(c.left - c.life), NotAfter: now.Add(c.left)}
		warnOfTime(zerolog.New(&log), "cert.pem", certificate, now, "Nothing works")
		if warned := strings.Contains(log.String(), `"level":"warn"`); warned != c.warned {
			t.Errorf("%s: %s", name, log.String())
		}
	}
}
