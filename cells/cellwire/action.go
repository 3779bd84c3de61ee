// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/rs/zerolog"
)

// Action is something that a client asked for a server, and its outcome: a row of Nova's
// instance_actions with its event.
type Action struct {
	// Number counts the actions of a server from 1.
	Number int64      `json:"number"`
	Name   ActionName `json:"action"`
	Origin
	// Host did it, or was to; "": none.
	Host       string     `json:"host,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	// Failed says that the action did not do what was asked for. Details say why, for
	// administrators.
	Failed  bool   `json:"failed,omitempty"`
	Details string `json:"details,omitempty"`
}

// ActionName is what Nova calls an action.
type ActionName string

// The actions.
const (
	ActionCreate  ActionName = "create"
	ActionDelete  ActionName = "delete"
	ActionRestore ActionName = "restore"
	ActionStart   ActionName = "start"
	ActionStop    ActionName = "stop"
	ActionReboot  ActionName = "reboot"
	ActionRebuild ActionName = "rebuild"
	ActionReset   ActionName = "resetState"

	ActionEvacuate ActionName = "evacuate"
	ActionMigrate  ActionName = "migrate"
	ActionConfirm  ActionName = "confirmResize"
	ActionRevert   ActionName = "revertResize"
)

// MaxActions is how many actions of a server are kept, the newest.
const MaxActions = 500

// ActionsAnswer has the actions of a server.
type ActionsAnswer struct {
	Actions []Action `json:"actions"` // the newest first
	// Deleted says that the server is.
	Deleted bool `json:"deleted,omitempty"`
}

// Origin is the request of a client of the compute API that a change comes from.
type Origin struct {
	RequestID string `json:"request_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	ProjectID string `json:"project_id,omitempty"`
	// Traceparent is the W3C trace context in which the change is made; "" for none. Answers do not
	// have it.
	Traceparent string `json:"traceparent,omitempty"`
}

// HeaderOrigin is the header of a change with its [Origin], as a query string.
const HeaderOrigin = "X-Compute-Agent-Origin"

type originKey struct{}

// WithOrigin returns a context for changes that come from a request.
func WithOrigin(ctx context.Context, o Origin) context.Context {
	return context.WithValue(ctx, originKey{}, o)
}

// OriginOf returns the origin of a context; the zero Origin: it has none.
func OriginOf(ctx context.Context) Origin {
	o, _ := ctx.Value(originKey{}).(Origin)
	return o
}

// LoggerOf returns a logger whose lines have the request id of the origin of a context. Without one
// it is the logger itself.
func LoggerOf(ctx context.Context, log *zerolog.Logger) *zerolog.Logger {
	id := OriginOf(ctx).RequestID
	if id == "" {
		return log
	}
	of := log.With().Str("request_id", id).Logger()
	return &of
}

// String is the origin as [HeaderOrigin] has it, "" for none.
func (o Origin) String() string {
	values := url.Values{}
	for name, value := range o.parts() {
		if *value != "" {
			values.Set(name, *value)
		}
	}
	return values.Encode()
}

func (o *Origin) parts() map[string]*string {
	return map[string]*string{"request_id": &o.RequestID,
		"user_id": &o.UserID, "project_id": &o.ProjectID, "traceparent": &o.Traceparent}
}

// maxOriginPart bounds each part of an origin, in bytes, as Nova's columns do.
const maxOriginPart = 255

// ParseOrigin reads what String wrote. Parts of later versions are left out.
func ParseOrigin(text string) (o Origin, err error) {
	values, err := url.ParseQuery(text)
	for name, value := range o.parts() {
		*value = values.Get(name)
		if len(*value) > maxOriginPart {
			err = fmt.Errorf("%s has more than %d bytes", name, maxOriginPart)
		}
	}
	if err != nil {
		return Origin{}, &Error{Status: http.StatusBadRequest, Code: CodeBadRequest,
			Message: fmt.Sprintf("The header %s cannot be read: %.200s.", HeaderOrigin, err.Error())}
	}
	return o, nil
}
