// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// passes counts the passes of trackers.
type passes struct {
	passes      *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	steps       *prometheus.HistogramVec
	calls       *prometheus.HistogramVec
	conflicts   *prometheus.CounterVec
	drift       *prometheus.CounterVec
	writes      *prometheus.CounterVec
	transitions *prometheus.CounterVec
}

func newPasses() passes {
	ofNode := []string{"driver", "node"}
	return passes{
		passes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_passes_total",
			Help: "Passes over a node by outcome. All attempts of a pass count as one.",
		}, []string{"driver", "node", "outcome"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_pass_duration_seconds", Help: "Duration of a pass over a node.", Buckets: durations,
		}, []string{"driver"}),
		steps: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_step_duration_seconds",
			Help: "Duration of a step of a pass: read (the tree from Placement), guard (checks on the driver's " +
				"answer), apply (writes).",
			Buckets: durations,
		}, []string{"step", "outcome"}),
		calls: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_driver_call_duration_seconds",
			Help: "Duration of one call of a driver. reshape_needed is an answer, not a failure.", Buckets: durations,
		}, []string{"driver", "outcome"}),
		conflicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_conflicts_total",
			Help: "Passes that were computed again because another client wrote to the same resource providers. A " +
				"few are usual.",
		}, ofNode),
		drift: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_drift_total",
			Help: "Changes in Placement by other clients to what this agent had written.",
		}, ofNode),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_node_writes_total", Help: "Successful writes to Placement by node.",
		}, ofNode),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_plugin_transitions_total",
			Help: "Transitions of a driver's process into a state, however short it lasts.",
		}, []string{"driver", "state"}),
	}
}

// zero shows what never happened to a node as 0, so that a rate can be taken from the start.
func (p *passes) zero(driver, node string) {
	p.passes.WithLabelValues(driver, node, succeeded)
	p.passes.WithLabelValues(driver, node, failed)
	p.conflicts.WithLabelValues(driver, node)
	p.drift.WithLabelValues(driver, node)
	p.writes.WithLabelValues(driver, node)
}

func (p *passes) collectors() []prometheus.Collector {
	return []prometheus.Collector{p.passes, p.duration, p.steps, p.calls, p.conflicts, p.drift, p.writes, p.transitions}
}

// reshapes counts reshapes by outcome and measures their phases.
type reshapes struct {
	total  *prometheus.CounterVec
	phases *prometheus.HistogramVec
}

func newReshapes() reshapes {
	return reshapes{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "compute_agent_reshapes_total",
			Help: "Reshapes by outcome: done, refused (by the agent's checks or by Placement; not retried) or " +
				"failed (retried).",
		}, []string{"driver", "outcome"}),
		phases: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "compute_agent_reshape_phase_duration_seconds",
			Help: "Duration of a phase of a reshape: gather (all allocations), driver, compute (includes gather " +
				"and driver), guard, write.",
			Buckets: durations,
		}, []string{"phase", "outcome"}),
	}
}

// zero shows reshapes that never happened as 0, so that the first one is an increase.
func (r *reshapes) zero(driver string) {
	for _, outcome := range []string{"done", "refused", "failed"} {
		r.total.WithLabelValues(driver, outcome)
	}
}

func (r *reshapes) collectors() []prometheus.Collector {
	return []prometheus.Collector{r.total, r.phases}
}

// pass is the state of the pass that a context belongs to.
type pass struct {
	reshaping bool // the reshape is being computed
	computed  bool // this attempt has computed a reshape and not written it yet
}

type passKey struct{}

// Begin implements [resourcetracker.Observer].
func (m *Metrics) Begin(
	ctx context.Context, step resourcetracker.Step, driver, node string,
) (context.Context, func(error)) {
	start := m.now()
	seconds := func() float64 { return m.now().Sub(start).Seconds() }
	if step == resourcetracker.StepPass {
		m.passes.zero(driver, m.nodes.label(node))
		m.reshapes.zero(driver)
		return context.WithValue(ctx, passKey{}, &pass{}), func(err error) {
			m.passes.passes.WithLabelValues(driver, m.nodes.label(node), outcome(err)).Inc()
			m.passes.duration.WithLabelValues(driver).Observe(seconds())
		}
	}
	current, _ := ctx.Value(passKey{}).(*pass)
	if current == nil {
		current = &pass{} // a step outside a pass: a dry run, or a node list
	}
	if step == resourcetracker.StepRead {
		*current = pass{} // the next attempt of the pass
	}
	if step == resourcetracker.StepReshape {
		current.reshaping = true
	}
	return ctx, func(err error) { m.endStep(current, step, driver, seconds(), err) }
}

// endStep records the end of a step of a pass.
func (m *Metrics) endStep(current *pass, step resourcetracker.Step, driver string, seconds float64, err error) {
	phase := func(name string) { m.reshapes.phases.WithLabelValues(name, outcome(err)).Observe(seconds) }
	switch step {
	case resourcetracker.StepDriver:
		m.passes.calls.WithLabelValues(driver, callOutcome(err)).Observe(seconds)
		if current.reshaping {
			phase("driver")
		}
	case resourcetracker.StepGather:
		phase("gather")
	case resourcetracker.StepGuard:
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(seconds)
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
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(seconds)
		if current.computed {
			phase("write")
			m.reshapes.total.WithLabelValues(driver, reshapeOutcome(err)).Inc()
		}
	default:
		m.passes.steps.WithLabelValues(string(step), outcome(err)).Observe(seconds)
	}
}

// callOutcome is the label value of a driver call. A request for a reshape is not a failure.
func callOutcome(err error) string {
	if errors.Is(err, plugins.ErrReshapeNeeded) {
		return "reshape_needed"
	}
	return outcome(err)
}

func reshapeOutcome(err error) string {
	var refused *reshape.Error
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &refused), errors.Is(err, reportclient.ErrReshapeRefused):
		return "refused"
	}
	return "failed"
}

// PluginTransition counts a transition of a driver's process, however short the state lasts.
func (m *Metrics) PluginTransition(driver string, state pluginhost.State) {
	m.passes.transitions.WithLabelValues(driver, string(state)).Inc()
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
