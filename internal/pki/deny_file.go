// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// DenyFile is the DenyList of a file, as the file is now. Make one with OpenDenyFile or
// FollowDenyFile; a nil DenyFile refuses none. It is safe for concurrent use.
type DenyFile struct {
	file     *files.Reloaded[*DenyList]
	follower *follower // nil: the file is an operator's
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
	return &DenyFile{file: file}, nil
}

// Get is the list.
func (f *DenyFile) Get() *DenyList {
	if f == nil {
		return nil
	}
	return f.file.Get()
}

// Run keeps the file like the list that it is a copy of, until ctx ends; nothing for other files. A
// process runs it once.
func (f *DenyFile) Run(ctx context.Context) {
	if f != nil && f.follower != nil {
		f.follower.run(ctx)
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
// another process waits for it. A symbolic link is not followed: the directory may be a service's,
// and the process root's.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
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
