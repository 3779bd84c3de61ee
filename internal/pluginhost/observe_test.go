// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCallsAreObserved: each call is made in the observer's context, with its trace context.
func TestCallsAreObserved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	type key struct{}
	var mu sync.Mutex
	var began, ended, sent []string
	r.opts.Observe = func(ctx context.Context, plugin, call string) (context.Context, string, func(error)) {
		mu.Lock()
		defer mu.Unlock()
		began = append(began, plugin+" "+call)
		return context.WithValue(ctx, key{}, call), "trace of " + call, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				ended = append(ended, plugin+" "+call)
			}
		}
	}
	r.opts.Dial = []grpc.DialOption{grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
			opts ...grpc.CallOption) error {
			out, _ := metadata.FromOutgoingContext(ctx)
			call, _ := ctx.Value(key{}).(string)
			mu.Lock()
			for _, context := range out.Get(protocol.TraceparentKey) {
				sent = append(sent, call+": "+context)
			}
			mu.Unlock()
			return invoke(ctx, method, request, reply, conn, opts...)
		},
	)}
	p := r.mustStart(Spec{Name: "fake", Path: fakePath, Config: []byte(`{"nodes":[{"name":"cn1"}]}`)})
	testproc.Try(p.AvailableNodes(t.Context())).Or(t)
	mu.Lock()
	defer mu.Unlock()
	const call = "fake Driver/AvailableNodes"
	if !slices.Contains(began, call) || !slices.Contains(ended, call) ||
		!slices.Contains(sent, "Driver/AvailableNodes: trace of Driver/AvailableNodes") {
		t.Errorf("began %q, ended %q, sent %q", began, ended, sent)
	}
}
