// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/agent/statedir"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// listing is an agent with two nodes.
type listing struct{ control.Agent }

func (listing) Nodes(context.Context) (statedir.Nodes, error) {
	return statedir.Nodes{Nodes: []statedir.Node{{Name: "cn1", UUID: "u1"}, {Name: "cn2", UUID: "u2"}}}, nil
}

// TestCompletion: a shell gets the names of nodes from the agent that runs, and the numbers of
// reshapes from the journal.
func TestCompletion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := testproc.SocketDir(t)
	completed := func(args ...string) string {
		var out, problems bytes.Buffer
		args = append([]string{"__complete"}, args...)
		if code := execute(t.Context(), append(args, "--state-dir", dir, "--runtime-dir", dir, ""), &out,
			&problems); code != cli.ExitDone {
			t.Errorf("%q: exit code %d, %s", args, code, &problems)
		}
		values, _, _ := strings.Cut(out.String(), ":4\n")
		return strings.ReplaceAll(values, "\n", " ")
	}
	testproc.Equal(t, completed("node", "remove"), "", "without an agent and a state: %q")
	testproc.Equal(t, completed("reshape", "undo"), "", "without reshapes: %q")
	ctx, stop := context.WithCancel(t.Context())
	socket := testproc.Try(control.Open(ctx, config.Agent{RuntimeDir: dir}.ControlSocket())).Or(t)
	over := make(chan error, 1)
	go func() { over <- socket.Serve(ctx, listing{}, zerolog.Nop()) }()
	t.Cleanup(func() { stop(); testproc.NoError(t, <-over) })
	const nodes = "cn1\tu1 cn2\tu2 "
	for _, command := range []string{"node remove", "node give", "disable", "enable", "allocations audit --node",
		"allocations heal --node", "adopt --node"} {
		words := strings.Fields(command)
		if strings.HasPrefix(words[len(words)-1], "--") { // its value comes last
			words = append(words[:len(words)-1], "--state-dir", dir, words[len(words)-1])
			var out, problems bytes.Buffer
			_ = execute(t.Context(), append(append([]string{"__complete", "--runtime-dir", dir}, words...), ""), &out,
				&problems)
			testproc.Contains(t, strings.ReplaceAll(out.String(), "\n", " "), nodes, command+": %q")
			continue
		}
		testproc.Equal(t, completed(words...), nodes, command+": %q")
	}
	testproc.Equal(t, completed("node", "remove", "cn1"), "", "a second node: %q")
	reshapes := journal.New(dir)
	testproc.Check(t, reshapes.Begin("00000000-0000-4000-8000-000000000001", &reportclient.Reshape{}))
	testproc.Check(t, reshapes.End("00000000-0000-4000-8000-000000000001", reportclient.ReshapeHappened))
	for _, command := range []string{"show", "undo"} {
		if got := completed("reshape", command); !strings.HasPrefix(got, "1\t20") ||
			!strings.HasSuffix(got, " "+string(reportclient.ReshapeHappened)+" ") {
			t.Errorf("%s: %q", command, got)
		}
	}
}
