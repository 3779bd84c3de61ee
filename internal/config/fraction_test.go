// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestFraction(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "1": 1, "0.25": 0.25, "1e-3": 0.001} {
		c := mustLoad(t,
			machine(write(t, map[string]string{"compute-agent.toml": "[tracing]\nsample_ratio = " + text})))
		testproc.Equal(t, c.Tracing.SampleRatio, want, "%s in a file is %v", text)
		c = mustLoad(t, machine(write(t, map[string]string{"compute-agent.toml": ""}),
			"COMPUTE_AGENT_TRACING_SAMPLE_RATIO="+text))
		testproc.Equal(t, c.Tracing.SampleRatio, want, "%s in a variable is %v", text)
	}
	for _, text := range []string{"-0.1", "1.5", "nan", "inf", `"half"`, "true"} {
		var bad Problems
		if _, err := Load(
			machine(write(t,
				map[string]string{"compute-agent.toml": "[tracing]\nsample_ratio = " + text}))); !errors.As(err, &bad) {
			t.Errorf("%s in a file: %v", text, err)
		}
	}
	for _, text := range []string{"-0.1", "2", "NaN", "half", ""} {
		var bad Problems
		if _, err := Load(machine(write(t, map[string]string{"compute-agent.toml": ""}),
			"COMPUTE_AGENT_TRACING_SAMPLE_RATIO="+text)); !errors.As(err, &bad) {
			t.Errorf("%q in a variable: %v", text, err)
		}
	}
}
