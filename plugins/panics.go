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

// maxPanics is how many places of a driver's code are counted separately. Others are counted
// together.
const maxPanics = 100

// panics logs a driver's panics: the first at each place of the code with its stack, then the count
// whenever it has doubled. A driver that panics in every call would fill the agent's log with the
// same stack.
type panics struct {
	mu    sync.Mutex
	count map[place]uint
}

// place is a stack, at least down to where the SDK called the driver.
type place struct {
	call  string
	stack [40]uintptr
}

// record logs a recovered panic. The deferred function that recovered it calls record, so that the
// stack is still that of the panic.
func (p *panics) record(log zerolog.Logger, call string, value any) {
	at := place{call: call}
	runtime.Callers(3, at.stack[:]) // without Callers, record and the deferred function
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
			Msg("The driver panicked. This call fails, and the plugin keeps running. It is a defect of the driver: " +
				"report it with this stack.")
	case bits.OnesCount(n) == 1:
		log.Error().Str("panic", fmt.Sprint(value)).Uint("times", n).
			Msg("The driver keeps panicking at the same place. The stack was logged the first time since the plugin " +
				"was started.")
	}
}
