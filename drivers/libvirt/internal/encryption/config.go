// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// GuestsKey is the name of the configuration's key, which is Nova's.
const GuestsKey = "num_memory_encrypted_guests"

// MemoryEncryptionConfig are the keys about encrypted memory in the driver's configuration.
type MemoryEncryptionConfig struct {
	// Guests bounds the SEV guests of the host (not SEV-ES and SEV-SNP guests, as in Nova); 0 allows none, and nil leaves it to the hardware.
	Guests *int64 `json:"num_memory_encrypted_guests"`
}

// Limit is the parsed configuration. The zero value sets no limit.
type Limit struct {
	guests int64
	set    bool
}

// Parse reads the configuration, as far as it can be judged without a host. Errors are [*plugins.ConfigError].
func Parse(c MemoryEncryptionConfig) (Limit, error) {
	if c.Guests == nil {
		return Limit{}, nil
	}
	if *c.Guests < 0 || *c.Guests > providertree.MaxUnit {
		return Limit{}, &plugins.ConfigError{Key: GuestsKey, Problem: fmt.Sprintf("%d must be from 0 to %d; without the key the hardware's limit counts", *c.Guests, providertree.MaxUnit)}
	}
	return Limit{guests: *c.Guests, set: true}, nil
}
