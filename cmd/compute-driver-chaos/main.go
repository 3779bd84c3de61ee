// SPDX-License-Identifier: Apache-2.0

// Command compute-driver-chaos is the plugin process of the chaos driver, which misbehaves as it is told.
package main

import (
	"fmt"
	"os"

	"github.com/compute-agent/compute-agent/drivers/chaos"
	"github.com/compute-agent/compute-agent/plugins"
)

func main() {
	if err := chaos.Start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compute-driver-chaos:", err)
		os.Exit(64) // EX_USAGE
	}
	plugins.Serve(chaos.New())
}
