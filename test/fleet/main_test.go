// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"flag"
	"os"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	agentCount = flag.Int("fleet.agents", 200, "agents")
	firstAgent = flag.Int("fleet.first", 0,
		"number of the first agent; fleets that report to the same servers at the same time need different agents")
	providerCount = flag.Int("fleet.providers", 7, "resource providers of each agent")
	serverCount   = flag.Int("fleet.servers", 2, "Placement servers to start")
	database      = flag.String("fleet.database", "",
		"`DSN` of the database that they share; mariadb and postgresql start one; without it each has its own "+
			"SQLite file, and its own agents")
	serverURLs = flag.String("fleet.url", "",
		"Placement servers to use instead, which share a database: `URLs` with commas")
	serverPIDs = flag.String("fleet.pid", "",
		"the processes of those servers and of their databases on this machine, whose CPU time and memory are "+
			"shown: `PIDs` with commas")
	configuration = flag.String("fleet.config", "", "configuration `FILE` of the agents, for credentials and timings")
	balance       = flag.String("fleet.balance", "agent",
		"what is distributed over the servers: each `agent` or each request")
	phaseList = flag.String("fleet.phases", "create,restart,steady",
		"the `phases`, with commas; without create the trees must be there: they are loaded into the databases of "+
			"started servers, which must be empty")
	within      = flag.Duration("fleet.within", 5*time.Minute, "simulated time in which all agents start")
	steadyTime  = flag.Duration("fleet.steady", 10*time.Minute, "simulated time of the phase steady")
	pace        = flag.Float64("fleet.pace", 0, "simulated seconds in a second; 0: as many as possible")
	workerCount = flag.Int("fleet.workers", 16, "agents that are busy at the same time")

	hostCount = flag.Int("fleet.hosts", 20, "hosts of the cell")
	bootCount = flag.Int("fleet.boots", 0,
		"servers that are built in the cell, on further hosts, after it was measured")
	cellTime = flag.Duration("fleet.for", 0, "how long the cell is measured after all hosts are there")
)

var (
	binaries = testproc.Of("cmd/compute-agent")
	check    = testproc.Check
)

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }
