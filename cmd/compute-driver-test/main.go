// SPDX-License-Identifier: Apache-2.0

// Command compute-driver-test is the conformance suite for virt drivers, which `compute-agent
// plugin test` starts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

func main() {
	// A Ctrl-C is for all processes of a terminal. The agent ends this one by its input.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT)
	if err := drivertest.Serve(context.Background(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "compute-driver-test: use compute-agent plugin test:", err)
		os.Exit(1)
	}
}
