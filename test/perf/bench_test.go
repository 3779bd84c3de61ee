// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// inProcess is our service on an SQLite file, without a socket, with the nested data set.
func inProcess(tb testing.TB, trees int) (*Client, *nestedData) {
	tb.Helper()
	service, err := placement.NewDirect(tb.Context(), placement.Config{StateDir: tb.TempDir(), Logger: zerolog.Nop()})
	testproc.Check(tb, err)
	tb.Cleanup(func() { testproc.NoError(tb, service.Close()) })
	c := NewClientOver(service, "http://placement")
	data := newNested(rand.New(rand.NewPCG(1, 2)), trees)
	testproc.Check(tb, data.load(tb.Context(), c))
	return c, data
}

// benchmark runs the operations that perf compare runs, each with one client, without a socket: for
// profiles. The client is in the figures. cpu-ns/op is the processor time, which a busy machine
// changes less than the time that passes.
func benchmark(b *testing.B, op func(*nestedData) operation) {
	c, data := inProcess(b, 100)
	st := testproc.Try(op(data).begin(b.Context(), c, 0)).Or(b)
	ctx := context.Background()
	b.ReportAllocs()
	var used time.Duration
	defer func() { b.ReportMetric(float64(used)/float64(b.N), "cpu-ns/op") }()
	for b.Loop() {
		if st.prepare != nil {
			b.StopTimer()
			testproc.Check(b, st.prepare(ctx))
			b.StartTimer()
		}
		before := processorTime(b)
		testproc.Try(st.do(ctx)).Or(b)
		used += processorTime(b) - before
	}
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	var at unix.Timespec
	testproc.Check(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &at))
	return time.Duration(at.Nano())
}

func BenchmarkPutInventories(b *testing.B) { benchmark(b, (*nestedData).inventoryWrites) }
func BenchmarkRefresh(b *testing.B)        { benchmark(b, (*nestedData).refreshes) }
func BenchmarkClaim(b *testing.B)          { benchmark(b, (*nestedData).claimsAlone) }
func BenchmarkLoadTree(b *testing.B)       { benchmark(b, (*nestedData).loads) }

func BenchmarkReshape1000(b *testing.B) {
	benchmark(b, func(d *nestedData) operation { return d.reshapes(len(reshaped)-1, reshaped[len(reshaped)-1]) })
}
