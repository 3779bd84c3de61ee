// SPDX-License-Identifier: Apache-2.0

// Command compute-driver-fake is the plugin process of the fake driver.
package main

import (
	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
)

func main() { plugins.Serve(fake.New()) }
