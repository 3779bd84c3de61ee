// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/host"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// passes count what trackers do.
type passes struct {
	passes    *prometheus.CounterVec
	duration  *prometheus.HistogramVec
	steps     *prometheus.HistogramVec
	calls     *prometheus.HistogramVec
	conflicts *prometheus.CounterVec
	drift     *prometheus.CounterVec
	writes    *prometheus.CounterVec
	moves     *prometheus.CounterVec
}

func newPasses() passes {
	ofNode := []string{"driver", "node"}
	return passes{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_passes_total", Help: "Passes over a node, all tries of one counted as one, by how they ended.",
		}, []string{"driver", "node", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_pass_duration_seconds", Help: "Time that a pass over a node took.", Buckets: durations,
		}, []string{"driver"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_step_duration_seconds", Help: "Time that a step of a pass took: read (the tree from Placement), guard (checking the driver's answer), apply (writing).", Buckets: durations,
		}, []string{"step", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_driver_call_duration_seconds", Help: "Time that a driver took to answer one call.", Buckets: durations,
		}, []string{"driver", "outcome"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_conflicts_total", Help: "Passes that were computed anew because somebody else wrote to the same resource providers.",
		}, ofNode),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_drift_total", Help: "Things found changed in Placement that this agent had written.",
		}, ofNode),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_node_writes_total", Help: "Writes to Placement that were done, by node.",
		}, ofNode),
		moves: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_plugin_transitions_total", Help: "Times that a driver's process came into a state.",
		}, []string{"driver", "state"}),
	}
}

func (p *passes) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.passes, p.duration, p.steps, p.calls, p.conflicts, p.drift, p.writes, p.moves}
}

// reshapes count what became of reshapes, and what their phases took.
type reshapes struct {
	total  *prometheus.CounterVec
	phases *prometheus.HistogramVec
}

func newReshapes() reshapes {
	return reshapes{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_reshapes_total", Help: "Reshapes that were tried, by what became of them: done, refused (by the agent's checks or by Placement, for good) or failed (it is tried again).",
		}, []string{"driver", "outcome"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_reshape_phase_duration_seconds", Help: "Time that a phase of a reshape took: gather (all allocations), driver, compute (these two and more), guard, write.", Buckets: durations,
		}, []string{"phase", "outcome"}),
	}
}

func (r *reshapes) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.phases}
}

// pass is what is known of the pass that a context belongs to.
type pass struct {
	reshaping bool // within the reshape's computation
	computed  bool // this try has computed a reshape, which is to be written
}

type passKey struct{}

// Begin implements [resourcetracker.Observer].
func (m *Metrics) Begin(ctx context.Context, step resourcetracker.Step, driver, node string) (context.Context, func(error)) {
	began := m.now()
	took := func() float64 { return m.now().Sub(began).Seconds() }
	if step == resourcetracker.StepPass {
		return context.WithValue(ctx, passKey{}, &pass{}), func(err error) {
			m.passes.passes.WithLabelValues(driver, m.nodes.label(node), outcome(err)).Inc()
			m.passes.duration.WithLabelValues(driver).Observe(took())
		}
	}
	current, _ := ctx.Value(passKey{}).(*pass)
	if current == nil {
		current = &pass{} // a step outside of any pass: a dry run, or asking for the nodes
	}
	if step == resourcetracker.StepRead {
		*current = pass{} // a pass that begins anew
	}
	if step == resourcetracker.StepReshape {
		current.reshaping = true
	}
	return ctx, func(err error) { m.ended(current, step, driver, took(), err) }
}

// ended counts a step of a pass.
func (m *Metrics) ended(current *pass, step resourcetracker.Step, driver string, took float64, err error) {
	phase := func(name string) { m.reshapes.phases.WithLabelValues(name, outcome(err)).Observe(took) }
	switch step {
	case resourcetracker.StepDriver:
		m.passes.calls.WithLabelValues(driver, callOutcome(err)).Observe(took)
		if current.reshaping {
			phase("driver")
		}
	case resourcetracker.StepGather:
		phase("gather")
	case resourcetracker.StepGuard:
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(took)
		if !current.reshaping && !current.computed {
			return
		}
		phase("guard")
		if current.computed && err != nil {
			current.computed = false
			m.reshapes.total.WithLabelValues(driver, reshapeOutcome(err)).Inc()
		}
	case resourcetracker.StepReshape:
		phase("compute")
		current.reshaping, current.computed = false, err == nil
		if err != nil {
			m.reshapes.total.WithLabelValues(driver, reshapeOutcome(err)).Inc()
		}
	case resourcetracker.StepApply:
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(took)
		if current.computed {
			phase("write")
			m.reshapes.total.WithLabelValues(driver, reshapeOutcome(err)).Inc()
		}
	default:
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(took)
	}
}

// callOutcome tells a driver's wish for a reshape, which is an answer, from a failure.
func callOutcome(err error) string {
	if errors.Is(err, plugins.ErrReshapeNeeded) {
		return "reshape_needed"
	}
	return outcome(err)
}

func reshapeOutcome(err error) string {
	var refused *resourcetracker.ReshapeError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &refused), errors.Is(err, reportclient.ErrReshapeRefused):
		return "refused"
	}
	return "failed"
}

// PluginMoved counts that a driver's process came into a state. A state that lasts for a moment is counted, too.
func (m *Metrics) PluginMoved(driver string, state host.State) {
	m.passes.moves.WithLabelValues(driver, string(state)).Inc()
}

// Count implements [resourcetracker.Observer].
func (m *Metrics) Count(event resourcetracker.Event, driver, node string, n int) {
	var counter *prometheus.CounterVec
	switch event {
	case resourcetracker.EventConflict:
		counter = m.passes.conflicts
	case resourcetracker.EventDrift:
		counter = m.passes.drift
	case resourcetracker.EventWrite:
		counter = m.passes.writes
	default:
		return
	}
	counter.WithLabelValues(driver, m.nodes.label(node)).Add(float64(n))
}
