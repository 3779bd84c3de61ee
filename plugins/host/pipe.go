// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pipe is our end of one that a process writes its output to. It knows how far what comes out of it was dealt with, and so can tell when
// everything is that was written up to some moment. One goroutine reads.
type pipe struct {
	file *os.File
	conn syscall.RawConn

	mu    sync.Mutex
	taken int64         // bytes that were read from it
	dealt int64         // of those: the reader has asked for more since
	ended bool          // nobody reads it any more
	moved chan struct{} // closed and replaced whenever dealt or ended changes
	rest  int           // bytes that are still read after the deadline; -1 before it
}

func newPipe(file *os.File) (*pipe, error) {
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("using a pipe: %w", err)
	}
	return &pipe{file: file, conn: conn, moved: make(chan struct{}), rest: -1}, nil
}

// Read is that of [io.Reader]. To call it says that what it gave before was dealt with. Past the deadline it gives what was in the pipe when
// it noticed that, however late that was, and then [os.ErrDeadlineExceeded].
func (p *pipe) Read(buf []byte) (int, error) {
	p.progress(func() { p.dealt = p.taken })
	if len(buf) == 0 {
		return 0, nil
	}
	var n int
	var failed error
	err := p.conn.Read(func(fd uintptr) bool {
		n, failed = p.take(int(fd), buf)
		return !errors.Is(failed, unix.EAGAIN)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		late := p.conn.Control(func(fd uintptr) {
			if p.rest < 0 {
				p.rest, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ)
			}
			if p.rest > 0 {
				n, failed = p.take(int(fd), buf[:min(len(buf), p.rest)])
				p.rest -= n
				err = nil
			}
		})
		err = errors.Join(err, late)
	}
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, fmt.Errorf("reading a pipe: %w", failed)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// take reads what is there. That it left the pipe and that it is counted is one step for [pipe.catchUp].
func (p *pipe) take(fd int, buf []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n = max(n, 0)
		p.taken += int64(n)
		return n, err
	}
}

// progress makes a change that [pipe.catchUp] waits for.
func (p *pipe) progress(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	close(p.moved)
	p.moved = make(chan struct{})
}

// end says that nobody reads the pipe any more.
func (p *pipe) end() { p.progress(func() { p.ended = true }) }

// stopAt sets the deadline of Read.
func (p *pipe) stopAt(deadline time.Time) { _ = p.file.SetReadDeadline(deadline) }

// catchUp waits until everything that is in the pipe now was read and dealt with, but for a line that has not ended.
func (p *pipe) catchUp(ctx context.Context) error {
	target := int64(math.MaxInt64) // a pipe that was closed has ended
	_ = p.conn.Control(func(fd uintptr) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if waiting, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
			target = p.taken + int64(waiting)
		}
	})
	for {
		p.mu.Lock()
		there, moved := p.ended || p.dealt >= target, p.moved
		p.mu.Unlock()
		if there {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return fmt.Errorf("waiting until the plugin's output was read: %w", context.Cause(ctx))
		}
	}
}

// openPipe makes one, and returns the end that is written to besides.
func openPipe() (*pipe, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pipe: %w", err)
	}
	p, err := newPipe(r)
	if err != nil {
		_, _ = r.Close(), w.Close()
		return nil, nil, err
	}
	return p, w, nil
}

func closePipes(pipes []*pipe) {
	for _, p := range pipes {
		_ = p.file.Close()
	}
}
