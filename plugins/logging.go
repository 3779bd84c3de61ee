// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// agentLogger is the driver's logger: one JSON object a line, with the keys that the agent looks for. It sets zerolog's
// package-wide field names, since a driver that makes a logger of its own should be understood too.
func agentLogger(w io.Writer, level string) zerolog.Logger {
	zerolog.MessageFieldName = protocol.MessageField
	zerolog.LevelFieldName = protocol.LevelField
	zerolog.TimestampFieldName = protocol.TimeField
	zerolog.TimeFieldFormat = protocol.TimeFormat
	zerolog.TimestampFunc = func() time.Time { return time.Now().UTC() }
	zerolog.LevelFieldMarshalFunc = levelName
	lvl, err := zerolog.ParseLevel(level)
	if err != nil || lvl == zerolog.NoLevel {
		lvl = zerolog.InfoLevel
	}
	return zerolog.New(w).Level(lvl).With().Timestamp().Logger()
}

// levelName knows only the levels that the other side does.
func levelName(l zerolog.Level) string {
	switch l {
	case zerolog.FatalLevel, zerolog.PanicLevel:
		return zerolog.LevelErrorValue
	case zerolog.NoLevel:
		return zerolog.LevelInfoValue
	default:
		return l.String()
	}
}

// quietHCLog is for go-plugin's own messages on this side, of which only errors matter.
func quietHCLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Error, Output: stderr, JSONFormat: true})
}
