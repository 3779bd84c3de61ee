// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestTimeColumns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for src, want := range map[any]time.Time{
		nil:                          {},
		"2026-11-21 05:40:01.123456": time.Date(2026, 11, 21, 5, 40, 1, 123456000, time.UTC),
		"2026-11-21 05:40:01":        time.Date(2026, 11, 21, 5, 40, 1, 0, time.UTC),
		"2026-11-21 05:40:01.5":      time.Date(2026, 11, 21, 5, 40, 1, 500000000, time.UTC),
		"2026-11-21T05:40:01Z":       time.Date(2026, 11, 21, 5, 40, 1, 0, time.UTC),
		time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600)): time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
	} {
		got := time.Unix(1, 0)
		if err := (engine.TimeScan{To: &got}).Scan(src); err != nil || !got.Equal(want) {
			t.Errorf("%v reads as %v, %v, want %v", src, got, err, want)
		}
	}
	for _, src := range []any{"", "yesterday", "2026-11-21 05:4x:01", int64(5)} {
		got := time.Time{}
		if err := (engine.TimeScan{To: &got}).Scan(src); err == nil {
			t.Errorf("%v reads as %v, want an error", src, got)
		}
	}
}

// FuzzTimeColumns: what is read by hand is what package time reads, and all
// that SQLAlchemy writes is read.
func FuzzTimeColumns(f *testing.F) {
	for _, s := range []string{"2026-11-21 05:40:01.123456", "2026-11-21 05:40:01", "0000-00-00 00:00:00",
		"2026-02-30 25:61:61.000000", "9999-12-31 23:59:59.999999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var got time.Time
		err := (engine.TimeScan{To: &got}).Scan(text)
		for _, layout := range []string{engine.TimeText, "2006-01-02 15:04:05"} {
			want, wantErr := time.Parse(layout, text)
			if wantErr != nil {
				continue
			}
			if err == nil && !got.Equal(want) {
				t.Errorf("%q reads as %v, package time says %v", text, got, want)
			}
			if err != nil && want.Format(layout) == text {
				t.Errorf("%q is not read: %v", text, err)
			}
		}
	})
}
