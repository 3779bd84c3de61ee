// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestProgressIsShownOnceItTakesLong(t *testing.T) {
	const line = "\r\x1b[K"
	for _, c := range []struct {
		name          string
		takes         time.Duration
		terminal, end string
	}{
		{"at once", 900 * time.Millisecond, "", ""},
		{"some seconds", 2500 * time.Millisecond, line + "Restoring the database: 5 rows (1s)" + line +
			"Restoring the database: 5 rows (2s)" + line, ""},
		{"long", 20500 * time.Millisecond, "",
			"Restoring the database: 5 rows\\u001b[2J (10s)\nRestoring the database: 5 rows\\u001b[2J (20s)\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var screen, file bytes.Buffer
				on, off := NewProgress(NewTerminal(&screen, 80, false), "Restoring the database"),
					NewProgress(&file, "Restoring the database")
				on.Note("%d rows", 5)
				off.Note("%d rows\x1b[2J", 5)
				time.Sleep(c.takes)
				on.End()
				off.End()
				if got := screen.String(); c.terminal != "" && got != c.terminal || c.takes < time.Second && got != "" {
					t.Errorf("on a terminal: %q", got)
				}
				testproc.Equal(t, file.String(), c.end, "in a file: %q")
			})
		})
	}
}

func TestProgressFitsTheTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var screen bytes.Buffer
		p := NewProgress(NewTerminal(&screen, 24, false), "Restoring the database")
		time.Sleep(1500 * time.Millisecond)
		p.End()
		if got, want := screen.String(), "\r\x1b[KRestoring the d... (1s)\r\x1b[K"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}
