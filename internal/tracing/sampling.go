// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// ratio records a fraction of the traces that begin here. The SDK's own sampler decides by the bits
// of the trace id, of which ours have a few that are always the same.
type ratio float64

// ShouldSample implements [sdk.Sampler].
func (r ratio) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	if rand.Float64() < float64(r) {
		return sdk.SamplingResult{Decision: sdk.RecordAndSample}
	}
	return sdk.SamplingResult{Decision: sdk.Drop}
}

// Description implements [sdk.Sampler].
func (r ratio) Description() string { return fmt.Sprintf("ratio %v", float64(r)) }

// requestKey is where a context has the id of the request that its spans are for.
type requestKey struct{}

// ids makes the ids of traces and spans.
type ids struct{}

// NewIDs implements [sdk.IDGenerator]: the id of the request is that of the trace.
func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	id := traceIDOf(requestOf(ctx))
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
		binary.NativeEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id, newSpanID()
}

// NewSpanID implements [sdk.IDGenerator].
func (ids) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newSpanID() (id trace.SpanID) {
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// traceIDOf is the id of the trace of a request; the zero id if it is not "req-" and a UUID.
func traceIDOf(request string) (id trace.TraceID) {
	digits, is := strings.CutPrefix(request, "req-")
	raw, err := hex.DecodeString(strings.ReplaceAll(digits, "-", ""))
	if !is || err != nil || len(raw) != len(id) {
		return trace.TraceID{}
	}
	return trace.TraceID(raw)
}
