// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPause is the time between two tries to take the lock.
const lockPause = time.Second

// lock is held by the one process that schedules.
type lock struct{ file *os.File }

func (l *lock) release() {
	if l.file != nil {
		_ = l.file.Close() // and with it goes the lock
	}
}

// takeLock waits until no other process schedules. It is nil when the context ended before.
func (s *Scheduler) takeLock(ctx context.Context) (*lock, error) {
	if s.o.LockFile == "" {
		return &lock{}, nil
	}
	file, err := os.OpenFile(s.o.LockFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock file of the scheduler: %w", err)
	}
	ticker := time.NewTicker(lockPause)
	defer ticker.Stop()
	for waited := false; ; waited = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			if waited {
				s.o.Logger.Info().Str("file", s.o.LockFile).Msg("This process schedules now: the one that did is gone.")
			}
			return &lock{file}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("locking %s: %w", s.o.LockFile, err)
		}
		if !waited {
			s.o.Logger.Info().Str("file", s.o.LockFile).Msg("Another process schedules; this one takes over when that one ends.")
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, nil
		case <-ticker.C:
		}
	}
}
