// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/systemd"
)

// Logger returns a logger to the journal, or to standard error, which w is: JSON for files, lines
// for a terminal. colors allows colours there.
func Logger(c config.Log, w io.Writer, colors bool) zerolog.Logger {
	terminal, journal := term.IsTerminal(int(os.Stderr.Fd())), systemd.StderrIsJournal()
	zerolog.TimeFieldFormat = "2006-01-02T15:04:05.000Z07:00"
	switch c.Form(journal, terminal) {
	case config.FormatConsole:
		if p, ok := w.(*textutil.Writer); ok { // it would sanitize the colors
			w = p.Unwrap()
		}
		console := zerolog.ConsoleWriter{
			Out: w, NoColor: !terminal || !colors, TimeFormat: "15:04:05",
			FormatPrepare: func(event map[string]any) error { // it quotes other fields itself
				if message, ok := event[zerolog.MessageFieldName].(string); ok {
					event[zerolog.MessageFieldName] = textutil.Printable(message)
				}
				return nil
			},
		}
		return zerolog.New(console).With().Timestamp().Logger()
	case config.FormatJournald:
		entries, err := systemd.NewJournal(systemd.JournalSocket, "compute-agent", w) // open until the process ends
		if err == nil {
			return zerolog.New(entries)
		}
		log := jsonLogger(w, journal)
		log.Warn().Err(err).Msg("Cannot write to the journal's socket; logging JSON to standard error instead. " +
			"[log] format sets the format.")
		return log
	}
	return jsonLogger(w, journal)
}

func jsonLogger(w io.Writer, journal bool) zerolog.Logger {
	ctx := zerolog.New(w).With()
	if !journal { // the journal adds timestamps
		ctx = ctx.Timestamp()
	}
	return ctx.Logger()
}
