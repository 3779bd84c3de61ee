// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins/drivertest/internal/checks"
)

// What is tested, and with what outcome.
type (
	// Check is one requirement that a driver must meet.
	Check = trial.Check
	// Outcome of a check.
	Outcome = trial.Outcome
	// Result is the outcome of a check.
	Result = trial.Result
	// Report is the outcome of all checks of a plugin.
	Report = trial.Report
)

// The outcomes.
const (
	Passed = trial.Passed
	Failed = trial.Failed
	// NotRun: nothing is known of the driver, for the reason that Result.Why gives.
	NotRun = trial.NotRun
)

// FormerError says why [Options.FormerPath] cannot be used as a former release of the plugin.
type FormerError struct {
	Path    string
	Problem string
}

// Error implements error.
func (e *FormerError) Error() string { return (*checks.FormerError)(e).Error() }

// Suite returns all checks, in the order in which they run.
func Suite() []Check {
	var out []Check
	for _, c := range checks.All() {
		out = append(out, c.Described())
	}
	return out
}

// Execute runs the checks on a plugin.
//
// Errors: the plugin cannot be tested at all (no such file, ctx ended); a [*FormerError]. A plugin
// that does not start, or fails every check, is a Report and not an error.
func Execute(ctx context.Context, opts Options) (Report, error) {
	b, err := checks.NewBench(opts.plugin())
	if err != nil {
		return Report{}, err
	}
	defer b.Close() //nolint:contextcheck // it ends in any case
	description, err := b.Start(ctx)
	if former := (*checks.FormerError)(nil); errors.As(err, &former) {
		err = (*FormerError)(former)
	}
	if err != nil {
		return Report{}, err
	}
	description.Path = opts.Path
	report := Report{Description: description, Results: []Result{}}
	if opts.Started != nil {
		opts.Started(report)
	}
	if err := opts.run(ctx, b, &report); err != nil {
		return report, err
	}
	if report.Ended == "" {
		report.Classes, report.Traits = b.Names(ctx)
	}
	return report, nil
}

// run runs the selected checks.
func (o Options) run(parent context.Context, b *checks.Bench, report *Report) error {
	ctx := parent
	if o.Timeout > 0 {
		limited, cancel := context.WithTimeout(parent, o.Timeout)
		defer cancel()
		ctx = limited
	}
	for _, c := range checks.All() {
		if o.Select != nil && !c.Described().In(o.Select) {
			continue
		}
		if report.Ended != "" {
			report.Results = append(report.Results, c.NotRun(report.Ended))
			continue
		}
		r := b.Run(ctx, c)
		switch {
		case parent.Err() != nil:
			return fmt.Errorf("testing %s: %w", b.Path(), parent.Err())
		case ctx.Err() != nil:
			report.Ended = fmt.Sprintf("the suite timed out after %v", o.Timeout)
			r.Outcome, r.Sent, r.Came, r.Why = Failed, "this check and those before it", report.Ended, ""
		case r.Outcome == Failed && o.FailFast:
			report.Ended = "a check failed"
		}
		report.Results = append(report.Results, r)
		if o.Each != nil {
			o.Each(r)
		}
	}
	return nil
}
