// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"fmt"
)

// Discrepancy is something about the host, or about how the configuration fits it, that does not
// stop the driver but that the operator should know: a fact and its consequence.
type Discrepancy struct {
	// Key names the discrepancy and stays the same while it holds: cpu-isolated, pci-unused-2.
	Key  string
	Text string
}

// Discrepancyf makes a discrepancy.
func Discrepancyf(key, format string, args ...any) Discrepancy {
	return Discrepancy{Key: key, Text: fmt.Sprintf(format, args...)}
}
