// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"bytes"
	"sync"
)

// Buffer is a log that a test reads while goroutines write to it. Its zero value is ready for use.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
