// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// Microversion is what every request asks for: candidates with mappings, root_required and
// same_subtree (1.36), and consumer types (1.38). Only a request that needs an extension asks for
// the microversion that has them: see [Client.Check].
const Microversion = "1.38"

// ConsumerType is the consumer type of a server, as Nova has it.
const ConsumerType = "INSTANCE"

// Client is a client of one Placement. Its methods may be called from several goroutines.
type Client struct {
	*placementclient.Client
	// optionalPolicy: the last request that needed it was granted the extension group_policy.
	optionalPolicy atomic.Bool
	// withoutRoots is how many more requests do not ask for the extension root_member_of.
	withoutRoots atomic.Int32
	// grants is how many writes gave something to a consumer.
	grants atomic.Int64
}

// New returns a client; its microversion is always [Microversion]. It makes no request.
func New(cfg placementclient.Config) (*Client, error) {
	cfg.Microversion = Microversion
	client, err := placementclient.New(cfg)
	if err != nil {
		return nil, err
	}
	return &Client{Client: client}, nil
}

// Grants is how many writes gave something to a consumer. Those that only take do not count: a
// Placement whose disk is full may do these.
func (c *Client) Grants() int64 { return c.grants.Load() }

// ErrConsumerConflict means: the consumer does not have the generation that was given. Read it and
// decide again. It is no [placementclient.ErrConflict]: that is one of a resource provider, and the
// same again may work.
var ErrConsumerConflict = errors.New("the consumer's allocations changed in the meantime")

// consumerConflict is an error about a consumer that was changed meanwhile.
func consumerConflict(err error) error { return fmt.Errorf("%w: %s", ErrConsumerConflict, err.Error()) }
