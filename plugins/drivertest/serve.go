// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// Serve runs the suite for another process, such as `compute-agent plugin test`: it writes all
// checks to out, reads which plugin to test from in, and writes each result as it comes. The end of
// in stops it. Package trial has the documents.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	documents := json.NewEncoder(out)
	if err := documents.Encode(trial.Event{Checks: Suite()}); err != nil {
		return err
	}
	asked := json.NewDecoder(in)
	var o trial.SuiteOptions
	if err := asked.Decode(&o); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	opts, err := optionsOf(o)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() { // it ends with the process
		_, _ = io.Copy(io.Discard, in)
		stop()
	}()
	write := func(e trial.Event) {
		if err := documents.Encode(e); err != nil {
			stop() // the other process has ended
		}
	}
	opts.Started = func(r Report) { write(trial.Event{Started: &r}) }
	opts.Each = func(r Result) { write(trial.Event{Result: &r}) }
	report, err := Execute(ctx, opts)
	end := trial.End{Report: report}
	if err != nil {
		var former *FormerError
		end.Error, end.Former = err.Error(), errors.As(err, &former)
	}
	return documents.Encode(trial.Event{End: &end})
}

func optionsOf(o trial.SuiteOptions) (Options, error) {
	opts := Options{
		Path: o.Path, Args: o.Args, Env: o.Env, Config: o.Config, FormerPath: o.FormerPath, Former: o.Former,
		Sandbox: (*Sandbox)(o.Sandbox), NoSandbox: o.NoSandbox,
		Timeout: o.Timeout, CheckTimeout: o.CheckTimeout, FailFast: o.FailFast,
	}
	if o.Instances {
		opts.Instances = &InstanceTemplate{Image: o.Image}
	}
	var err error
	if o.Select != "" {
		opts.Select, err = regexp.Compile(o.Select)
	}
	return opts, err
}
