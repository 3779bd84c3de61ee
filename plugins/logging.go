// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// agentLogger returns the driver's logger: one JSON object per line, with the keys that the agent
// expects. It sets zerolog's package-wide field names, so that a driver's own loggers have them
// too.
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

// levelName returns only levels that the agent knows.
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

// quietHCLog returns the logger for go-plugin's own messages: errors only.
func quietHCLog() hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Name: "go-plugin", Level: hclog.Error, Output: stderr, JSONFormat: true})
}
