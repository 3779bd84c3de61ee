// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"compute-agent": main})
}

// TestScripts runs commands as a user types them; each file in testdata/script is a story.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("COMPUTE_AGENT_AGENT_RUNTIME_DIR", "/nonexistent-compute-agent")
			return nil
		},
	})
}
