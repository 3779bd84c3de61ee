// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// lookInterval is how often Run looks at the file.
const lookInterval = time.Second

// DenyFile is the DenyList of a file, as the file is now. Make one with OpenDenyFile or
// FollowDenyFile; a nil DenyFile refuses none. It is safe for concurrent use.
type DenyFile struct {
	file     *files.Reloaded[*DenyList]
	follower *follower // nil: the file is an operator's

	mu    sync.Mutex
	bound map[*binding]struct{}
}

// binding is a context that ends when its host is denied.
type binding struct {
	id  Identity
	end context.CancelCauseFunc
}

// OpenDenyFile reads a deny list; see ParseDenyList. The file is looked at again while requests
// come, at most once a second. If it cannot be used then, the old list stays, and log says so.
func OpenDenyFile(path string, log zerolog.Logger) (*DenyFile, error) {
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (*DenyList, error) {
		return ParseDenyList(files[0].Data, path)
	})
	if err != nil {
		return nil, fmt.Errorf("deny list: %w", err)
	}
	return &DenyFile{file: file, bound: map[*binding]struct{}{}}, nil
}

// Get is the list.
func (f *DenyFile) Get() *DenyList {
	if f == nil {
		return nil
	}
	return f.file.Get()
}

// Bind returns a context for what a host does for longer than a moment. It ends when the host is
// denied, with the error of [DenyList.CheckIdentity] as its cause, provided that Run runs. Call
// release when it is done.
func (f *DenyFile) Bind(ctx context.Context, id Identity) (bound context.Context, release func()) {
	if f == nil {
		return ctx, func() {}
	}
	bound, end := context.WithCancelCause(ctx)
	b := &binding{id, end}
	f.mu.Lock()
	f.bound[b] = struct{}{}
	f.mu.Unlock()
	// After it is known to Run: a change in between is seen by one of them.
	if err := f.Get().CheckIdentity(id); err != nil {
		end(err)
	}
	return bound, func() {
		f.mu.Lock()
		delete(f.bound, b)
		f.mu.Unlock()
		end(nil)
	}
}

// Run keeps the file like that of its source, if it has one, and ends the contexts of Bind when
// their hosts are denied, within two seconds after a change of the file. It returns when ctx ends.
// A process runs it once.
func (f *DenyFile) Run(ctx context.Context) {
	if f == nil {
		return
	}
	var fetching sync.WaitGroup
	defer fetching.Wait()
	if f.follower != nil {
		fetching.Go(func() { f.follower.run(ctx) })
	}
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for seen := f.Get(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if now := f.Get(); now != seen {
			seen = now
			f.enforce(now)
		}
	}
}

// enforce ends what runs for hosts that a list refuses.
func (f *DenyFile) enforce(list *DenyList) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for b := range f.bound {
		if err := list.CheckIdentity(b.id); err != nil {
			b.end(err)
		}
	}
}

// EditDenyFile changes the deny list of a file, which it makes if it is missing. Other processes
// that edit it wait. All users may read it: servers that run as others do. An error that wraps
// ErrFollowed if a server fetches the file from elsewhere: it would not keep the change.
func EditDenyFile(path string, change func(*DenyList) (*DenyList, error)) error {
	unlock, err := lock(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock"))
	if err != nil {
		return fmt.Errorf("deny list %s: %w", path, err)
	}
	defer unlock()
	list := &DenyList{}
	content, err := files.Read(path)
	switch {
	case err == nil:
		if source, followed := followedFrom(content.Data); followed {
			return fmt.Errorf("%w: %s is a copy of %s; edit the list there", ErrFollowed, path, source)
		}
		if list, err = ParseDenyList(content.Data, path); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("deny list: %w", err)
	}
	if list, err = change(list); err != nil {
		return err
	}
	if err := files.ReplaceMode(path, list.Text(), 0o644); err != nil {
		return fmt.Errorf("deny list: %w", err)
	}
	return nil
}

// lock waits for a lock that ends with the process. The file stays: it may not be removed while
// another process waits for it.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
