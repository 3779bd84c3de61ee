// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// PlacementMicroversion is what every request asks for: candidates with mappings, root_required and
// same_subtree (1.36), and consumer types (1.38). Only a request that needs an extension asks for
// the microversion that has them: see [PlacementClient.Check].
const PlacementMicroversion = "1.38"

// ConsumerType is the consumer type of a server, as Nova has it.
const ConsumerType = "INSTANCE"

// PlacementClient is a scheduler's client of one Placement. Its methods may be called from several
// goroutines.
type PlacementClient struct {
	*placementclient.Client
	// optionalPolicy: the last request that needed it was granted the extension group_policy.
	optionalPolicy atomic.Bool
	// withoutRoots is how many more requests do not ask for the extension root_member_of.
	withoutRoots atomic.Int32
	// gifts is how many writes gave something to a consumer. Those that only take do not count: a
	// Placement whose disk is full may do these.
	gifts atomic.Int64
}

// NewPlacementClient returns a client; its microversion is always [PlacementMicroversion]. It makes
// no request.
func NewPlacementClient(cfg placementclient.Config) (*PlacementClient, error) {
	cfg.Microversion = PlacementMicroversion
	client, err := placementclient.New(cfg)
	if err != nil {
		return nil, err
	}
	return &PlacementClient{Client: client}, nil
}

// ErrConsumerConflict means: the consumer does not have the generation that was given. Read it and
// decide again. It is no [placementclient.ErrConflict]: that is one of a resource provider, and the
// same again may work.
var ErrConsumerConflict = errors.New("the consumer's allocations changed in the meantime")

// consumerConflict is an error about a consumer that was changed meanwhile.
func consumerConflict(err error) error { return fmt.Errorf("%w: %s", ErrConsumerConflict, err.Error()) }
