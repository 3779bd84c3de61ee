// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"errors"
	"time"
)

// ErrConfig is wrapped by all errors about a configuration that cannot work.
var ErrConfig = errors.New("invalid configuration of cells")

// How long a request may take to arrive, an answer to be made and sent beside the time that its
// handler may wait for others, and requests under way may take to end when the service stops.
const (
	requestTimeout = 60 * time.Second
	answerTimeout  = 150 * time.Second
	stopGrace      = 5 * time.Second
)
