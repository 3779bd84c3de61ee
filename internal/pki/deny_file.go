// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// MaxAhead is how far ahead of a clock a date may be that another clock has made.
const MaxAhead = 5 * time.Minute

// DenyFile is the DenyList of a file, as the file is now. Make one with OpenDenyFile or
// FollowDenyFile; a nil DenyFile refuses none. It is safe for concurrent use.
type DenyFile struct {
	file     *files.Reloaded[*DenyList] // nil: the list is fetched
	follower *follower                  // nil: the file is an operator's
	log      zerolog.Logger
	maxAge   time.Duration // 0: any
	refuses  atomic.Bool   // the list was too old when it was asked for last
}

// OpenDenyFile reads a deny list; see ParseDenyList. The file is looked at again while requests
// come, at most once a second. If it is damaged then, or older than the list before, that one
// stays, and log says so; log has the hosts that are on the list no more, too. If it is damaged at
// once, all hosts are refused until it is repaired.
func OpenDenyFile(path string, log zerolog.Logger) (*DenyFile, error) {
	var last *DenyList // parse is called by one goroutine at a time
	file, err := files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (*DenyList, error) {
		list, err := ParseDenyList(files[0].Data, path)
		if err == nil {
			err = list.checkSuccessor(last, path)
		}
		switch {
		case err != nil && last == nil:
			log.Error().Err(err).Str("file", path).Msg(
				"The deny list cannot be used. All hosts are refused until it is repaired: " +
					"restore it, or, if the hosts in it are right, `compute-agent ca deny-list --accept`.")
			return &DenyList{unusable: true}, nil
		case err != nil:
			return nil, err
		}
		if serial, _ := list.Header(); serial == 0 {
			log.Warn().Str("file", path).
				Msg("The deny list has no header, so that a part of it that is lost is not noticed: " +
					"`compute-agent ca deny-list --renew` writes one.")
		}
		logMissing(log, list.missing(last), path)
		last = list
		return list, nil
	})
	if err != nil {
		return nil, fmt.Errorf("deny list: %w", err)
	}
	return &DenyFile{file: file, log: log.With().Str("file", path).Logger()}, nil
}

// logMissing logs which hosts are not refused any more.
func logMissing(log zerolog.Logger, hosts []string, path string) {
	if len(hosts) > 0 {
		log.Warn().Strs("hosts", hosts).Str("file", path).
			Msg("Hosts are not on the deny list any more: they are let in with their old certificates and tokens.")
	}
}

// RefuseAfter has Get refuse all hosts while the list is older than that; zero: never. It returns
// f, and is called before f is used.
func (f *DenyFile) RefuseAfter(maxAge time.Duration) *DenyFile {
	f.maxAge = maxAge
	return f
}

// Get is the list.
func (f *DenyFile) Get() *DenyList {
	if f == nil {
		return nil
	}
	var list *DenyList
	if f.follower != nil {
		list = f.follower.list.Load()
	} else {
		list = f.file.Get()
	}
	if list.unusable || !f.tooOld(list) {
		return list
	}
	return &DenyList{unusable: true}
}

// age is how old a list is, and whether that is too old. A list that is dated far ahead says
// nothing about its age.
func (f *DenyFile) age(list *DenyList) (age time.Duration, old bool) {
	age, fetched := f.Age()
	if !fetched {
		age = time.Since(list.date)
	}
	return age, f.maxAge > 0 && (age > f.maxAge || age < -MaxAhead)
}

// tooOld reports whether a list is too old, and logs when that changes.
func (f *DenyFile) tooOld(list *DenyList) bool {
	age, old := f.age(list)
	if f.refuses.CompareAndSwap(!old, old) {
		if old {
			f.log.Error().Time("date", list.date).Dur("age", age).Dur("max_age", f.maxAge).
				Msg("The deny list is older than deny_list.max_age, or is dated ahead of the clock. " +
					"All hosts are refused until it is fetched, or renewed with `compute-agent ca deny-list --renew`.")
		} else {
			f.log.Info().Msg("The deny list is recent again. Hosts that are not on it are let in.")
		}
	}
	return old
}

// Run keeps the list like the one that it is a copy of, until ctx ends; nothing for other files. A
// process runs it once.
func (f *DenyFile) Run(ctx context.Context) {
	if f != nil && f.follower != nil {
		f.follower.run(ctx, f.refusesAll)
	}
}

// EditDenyFile changes the deny list of a file, which it makes if it is missing, and gives it the
// next serial and the date. Other processes that edit it wait. The file stays readable for those
// who could read it; a new one is for its owner and group, which as root are those of the
// directory. An error that wraps ErrFollowed if a server fetches the file from elsewhere: it would
// not keep the change.
func EditDenyFile(path string, change func(*DenyList) (*DenyList, error)) error {
	return editDenyFile(path, ParseDenyList, change)
}

// ReadDenyFile reads the deny list of a file; nil if there is no file.
func ReadDenyFile(path string) (*DenyList, error) {
	content, err := files.Read(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // a nil list has no hosts
	}
	if err != nil {
		return nil, err
	}
	return ParseDenyList(content.Data, path)
}

// DenyInFile puts a host on the list of a file, with the reason that it has there unless there is
// another one. See EditDenyFile.
func DenyInFile(path string, d Denial) error {
	return EditDenyFile(path, func(l *DenyList) (*DenyList, error) {
		had, _ := l.Denial(d.Host)
		d.Reason = cmp.Or(d.Reason, had.Reason)
		return l.With(d)
	})
}

// RenewDenyFile gives the list of a file the next serial, and the date. See EditDenyFile.
func RenewDenyFile(path string) error {
	if _, err := os.Stat(path); err != nil {
		return err
	}
	return EditDenyFile(path, func(l *DenyList) (*DenyList, error) { return l, nil })
}

// AcceptDenyFile gives the hosts that a file has a header, whatever header it has.
func AcceptDenyFile(path string) error {
	return editDenyFile(path, func(text []byte, name string) (*DenyList, error) {
		l, _, err := parseDenyList(text, name)
		if err == nil && len(l.denials) == 0 {
			return nil, fmt.Errorf("%s has no host; if none is to be refused, remove it, and create another one", name)
		}
		return l, err
	}, func(l *DenyList) (*DenyList, error) { return l, nil })
}

func editDenyFile(
	path string, parse func(text []byte, name string) (*DenyList, error), change func(*DenyList) (*DenyList, error),
) error {
	unlock, err := lockDenyFile(path)
	if err != nil {
		return err
	}
	defer unlock()
	list := &DenyList{}
	content, err := files.Read(path)
	switch {
	case err == nil:
		if source, followed := FollowedFrom(content.Data); followed {
			return fmt.Errorf("%w: %s is a copy of %s; edit the list there", ErrFollowed, path, source)
		}
		if list, err = parse(content.Data, path); err != nil {
			return err
		}
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("deny list: %w", err)
	}
	serial := list.serial
	if list, err = change(list); err != nil {
		return err
	}
	now := time.Now()
	// The time, so that a list which is made again has a serial after that of the one before.
	if err := replaceDenyFile(path, list.Dated(max(serial+1, now.Unix()), now).Text()); err != nil {
		return fmt.Errorf("deny list: %w", err)
	}
	return nil
}

// CreateDenyFile makes a list without hosts. An error that wraps [os.ErrExist] if there is a file.
func CreateDenyFile(path string) error {
	unlock, err := lockDenyFile(path)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("deny list %s: %w", path, cmp.Or(err, os.ErrExist))
	}
	now := time.Now()
	return replaceDenyFile(path, new(DenyList).Dated(now.Unix(), now).Text())
}

const (
	// denyMode is the mode of a new list: not every user may see which hosts were stolen, and why.
	denyMode = 0o640
	// DenyGroup is the group of the servers' users, for a list that several of them read.
	DenyGroup = "compute-agent-deny-list"
)

// replaceDenyFile writes a list for those who can read the file that there is. A new one, of root,
// belongs to the owner and the group of the directory; if that is root's, DenyGroup can read it.
func replaceDenyFile(path string, text []byte) error {
	dir, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return err
	}
	mode, owner, group := os.FileMode(denyMode), -1, -1
	if in, ok := dir.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		owner, group = int(in.Uid), int(in.Gid)
		if group == 0 {
			group = denyGroup()
		}
	}
	switch file, err := os.Stat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	default:
		mode = file.Mode().Perm()&0o644 | 0o600
		if mode&0o004 != 0 && dir.Mode()&0o001 == 0 { // of no use to others: they cannot enter the directory
			mode = denyMode
		}
		if of, ok := file.Sys().(*syscall.Stat_t); ok && (of.Gid != 0 || os.Geteuid() != 0) {
			group = int(of.Gid)
		}
	}
	return files.ReplaceFor(path, text, mode, owner, group)
}

// denyGroup is the number of DenyGroup, or root's if there is no such group.
func denyGroup() int {
	g, err := user.LookupGroup(DenyGroup)
	if err != nil {
		return 0
	}
	id, _ := strconv.Atoi(g.Gid) // it is a number on all systems that have files.Replace
	return id
}

// lockDenyFile waits until no other process edits a list.
func lockDenyFile(path string) (unlock func(), err error) {
	unlock, err = lock(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock"))
	if err != nil {
		return nil, fmt.Errorf("deny list %s: %w", path, err)
	}
	return unlock, nil
}

// lock waits for a lock that ends with the process. The file stays: it may not be removed while
// another process waits for it. A symbolic link is not followed: the directory may be a service's,
// and the process root's.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := files.Lock(f, syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return func() { _ = f.Close() }, nil
}
