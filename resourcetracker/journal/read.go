// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// DirName is the directory of the journal below the agent's state directory.
const DirName = "reshapes"

// maxEntry bounds what is read of a file: a reshape of 10,000 consumers is about 10 MiB.
const maxEntry = 256 << 20

var (
	// ErrUnreadable says that the file of an entry is damaged, or of a newer version.
	ErrUnreadable = errors.New("the journal entry cannot be read")
	// ErrUnknownEntry says that there is no entry of that number.
	ErrUnknownEntry = errors.New("the journal has no such reshape")
)

// fileName is the name of the file; an open entry and a finished one have different names.
func fileName(id int64, root string, open bool) string {
	if open {
		return fmt.Sprintf("%06d-%s%s", id, root, openSuffix)
	}
	return fmt.Sprintf("%06d-%s%s", id, root, doneSuffix)
}

const (
	openSuffix = ".open.json"
	doneSuffix = ".json"
)

// parseName is the inverse of fileName.
func parseName(name string) (id int64, root string, open, ok bool) {
	rest, open := strings.CutSuffix(name, openSuffix)
	if !open {
		var done bool
		if rest, done = strings.CutSuffix(name, doneSuffix); !done {
			return 0, "", false, false
		}
	}
	number, root, found := strings.Cut(rest, "-")
	id, err := strconv.ParseInt(number, 10, 64)
	if !found || err != nil || id < 1 || !providertree.IsCanonicalUUID(root) {
		return 0, "", false, false
	}
	return id, root, open, true
}

// Read returns the entries below a state directory, oldest first, with those that cannot be read
// among them. No journal is an empty one.
func Read(stateDir string) ([]Entry, error) {
	dir := filepath.Join(stateDir, DirName)
	names, err := list(dir)
	if err != nil {
		return nil, err
	}
	out := make([]Entry, 0, len(names))
	for _, name := range names {
		out = append(out, readEntry(dir, name))
	}
	return out, nil
}

// Find returns one entry by its number.
//
// Errors: [ErrUnknownEntry], [ErrUnreadable].
func Find(stateDir string, id int64) (Entry, error) {
	entries, err := Read(stateDir)
	if err != nil {
		return Entry{}, err
	}
	for _, e := range entries {
		if e.ID == id {
			return e, e.Err
		}
	}
	return Entry{}, fmt.Errorf("%w: there is no reshape %d in %s",
		ErrUnknownEntry, id, filepath.Join(stateDir, DirName))
}

// list returns the names of the entries' files by number. Of a duplicate entry, left by a crash
// between writing the outcome and removing the open file, the finished file counts.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the journal of reshapes: %w", files.Denied(err))
	}
	byID := map[int64]string{}
	for _, f := range entries {
		id, _, open, ok := parseName(f.Name())
		if ok && (byID[id] == "" || !open) {
			byID[id] = f.Name()
		}
	}
	ids := make([]int64, 0, len(byID))
	for id := range byID {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		names = append(names, byID[id])
	}
	return names, nil
}

func readEntry(dir, name string) Entry { return readFile(dir, name).Entry }

// readFile reads one file. What its name says is known whatever is in it.
func readFile(dir, name string) file {
	id, root, open, _ := parseName(name)
	path := filepath.Join(dir, name)
	e, err := load(path)
	if err == nil {
		switch {
		case e.Version != 1 && e.Version != version:
			err = fmt.Errorf("it has version %d, but this agent knows version %d", e.Version, version)
		case e.ID != id || e.Root != root || e.Open() != open:
			err = errors.New("its content belongs to another entry than its name")
		default:
			err = e.decode()
		}
	}
	if err != nil {
		e = file{Entry: Entry{ID: id, Root: root, Err: fmt.Errorf("%w: %s: %w", ErrUnreadable, path, err)}}
		if !open {
			e.Outcome = reportclient.ReshapeUnknown
		}
		e.Damage = e.Err.Error()
	}
	e.File = path
	return e
}

// decode is the inverse of encode. In version 1 what was there before came with what was asked for.
func (f *file) decode() error {
	f.Entry.Version = 1
	if f.Former == nil {
		return errors.New("it holds no reshape")
	}
	f.Reshape = &reportclient.Reshape{}
	err := json.Unmarshal(f.Former, f.Reshape)
	if err == nil && f.Version > 1 {
		err = f.Reshape.FillFromRequest(f.Request)
	}
	return err
}

func load(path string) (e file, err error) {
	f, err := os.Open(path)
	if err != nil {
		return e, files.Denied(err)
	}
	defer func() { _ = f.Close() }()
	raw, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	if err != nil {
		return e, err
	}
	if len(raw) > maxEntry {
		return e, fmt.Errorf("it is larger than %d bytes", maxEntry)
	}
	return e, json.Unmarshal(raw, &e)
}
