// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// record has what the request changes recorded before it is answered. A request that could change
// something is refused while the audit log is required and cannot be written.
func (a *API) record(x *api.Exchange) error {
	log := a.audit
	if log == nil || !auditlog.Mutating(x.R.Method) || x.Route == "" || reads(x) {
		return nil
	}
	ctx, trail := log.Begin(x.Context(), auditlog.Request(&x.Exchange))
	err := log.Refusal()
	if change, ok := requestedChange(x); err == nil && ok && change.ID != "" && log.Required() {
		err = trail.Intend(ctx, change) // what a cell does is not in the API database
	}
	if err != nil {
		trail.Write(ctx) // the intent may be recorded yet
		return osapi.Errorf(http.StatusServiceUnavailable,
			"The audit log cannot be written to, so that changes are refused.").Because(err)
	}
	x.R = x.R.WithContext(ctx)
	x.OnAnswer = func(status int) {
		if status < http.StatusBadRequest && !trail.Changed() {
			if change, ok := requestedChange(x); ok {
				log.AddChanges(ctx, auditlog.Record{}, change)
			}
		}
		trail.Write(ctx)
	}
	return nil
}

// reads says that the route changes nothing, whatever its method: those of no version.
func reads(x *api.Exchange) bool { return !strings.HasPrefix(x.Route, api.Prefix) }

// auditKinds are the kinds of what paths are about that the API database does not keep, by the
// segment after the version. Their cells record what was before and after.
var auditKinds = map[string]string{"servers": auditlog.KindServer, "os-services": auditlog.KindService}

// readingActions change nothing.
var readingActions = map[string]bool{"os-getConsoleOutput": true}

// requestedChange is what the request asked of something in a cell.
func requestedChange(x *api.Exchange) (auditlog.Change, bool) {
	collection, below, _ := strings.Cut(strings.TrimPrefix(x.Route, api.Prefix), "/")
	kind, known := auditKinds[collection]
	if !known || readingActions[x.Action] {
		return auditlog.Change{}, false
	}
	_, what, _ := strings.Cut(below, "/")
	asked := x.Action
	switch {
	case strings.HasSuffix(asked, "Console") || what == "remote-consoles":
		kind, asked = auditlog.KindConsole, "console"
	case asked != "":
	case what == "" && x.R.Method == http.MethodDelete:
		asked = "delete"
	case what == "":
		asked = "update"
	default:
		asked = strings.ToLower(x.R.Method) + " " + strings.ReplaceAll(what, "/", " ")
	}
	return auditlog.Change{Kind: kind, ID: x.Param("id"), After: auditlog.Requested(asked)}, true
}
