// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"math/bits"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/rs/zerolog"
)

// maxPanics is how many places of a driver's code are told apart. What panics beyond them is counted together.
const maxPanics = 100

// panics tells of the panics of a driver in its log: the first at a place of the code with its stack, and how many there were when there are
// twice as many as were told of. A driver that panics at every call would bury the agent's log in stacks that are all the same.
type panics struct {
	mu    sync.Mutex
	count map[place]uint
}

// place is a stack, down to where the SDK called the driver, or further.
type place struct {
	call  string
	stack [40]uintptr
}

// told logs a panic that was recovered. It is called by the deferred function that did that, so that the stack is still the one of the panic.
func (p *panics) told(log zerolog.Logger, call string, value any) {
	at := place{call: call}
	runtime.Callers(3, at.stack[:]) // without Callers, told and the deferred function
	p.mu.Lock()
	if p.count == nil {
		p.count = map[place]uint{}
	}
	if p.count[at] == 0 && len(p.count) >= maxPanics {
		at = place{}
	}
	p.count[at]++
	n := p.count[at]
	p.mu.Unlock()
	switch {
	case n == 1:
		log.Error().Str("panic", fmt.Sprint(value)).Str("stack", string(debug.Stack())).
			Msg("the driver panicked; this call fails and the plugin goes on. It is a defect of the driver: report it with this stack")
	case bits.OnesCount(n) == 1:
		log.Error().Str("panic", fmt.Sprint(value)).Uint("times", n).
			Msg("the driver goes on panicking at the same place; the stack was logged at the first time since the plugin was started")
	}
}
