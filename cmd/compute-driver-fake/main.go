// SPDX-License-Identifier: Apache-2.0

// Command compute-driver-fake is the plugin process of the fake driver.
package main

import (
	"fmt"
	"os"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
)

func main() {
	if err := fake.Start(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "compute-driver-fake:", err)
		os.Exit(64) // EX_USAGE
	}
	plugins.Serve(fake.New())
}
