// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"time"

	"github.com/compute-agent/compute-agent/internal/tracing"
)

// Trace begins the span of the request, which is then in its context; Authenticate calls it.
// Clients that are not authenticated have none. Trusted is as [tracing.Arrival] has it.
func (x *Exchange) Trace(trusted bool) {
	if x.service.Tracing == nil {
		return
	}
	ctx, span := x.service.Tracing.Server(x.R.Context(), tracing.Arrival{
		Header: x.R.Header, Began: x.started, RequestID: x.ID, GlobalRequestID: GlobalRequestID(x.R), Trusted: trusted,
	})
	x.span, x.R = span, x.R.WithContext(ctx)
}

// Traced reports whether the request has a span that is recorded.
func (x *Exchange) Traced() bool { return x.span.Recorded() }

// endSpan ends the span of the request after its answer.
func (x *Exchange) endSpan(ended time.Time) {
	if x.span.Recorded() {
		x.span.Set(tracing.KeyProjectID, Shortened(x.Who.Project))
		if x.Who.Host != nil {
			x.span.Set(tracing.KeyHost, Shortened(x.Who.Host.Name))
		}
	}
	code := ""
	if x.err != nil {
		code = x.err.Code
	}
	x.span.EndAnswer(knownMethod(x.R.Method), x.Route, x.Status, code, ended)
}
