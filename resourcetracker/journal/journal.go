// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/reportclient"
)

// keep is how many finished entries are kept. Of more, the oldest that did not happen go first: a
// host on which one was refused again and again still knows what it once did.
const keep = 100

// version is of the files' format. Files of version 1 have the whole reshape and no request.
const version = 2

// Entry is one reshape.
type Entry struct {
	// Version is the version of the JSON in which `reshape show` prints an entry: 1.
	Version int `json:"version"`
	// ID counts the reshapes of this host.
	ID int64 `json:"id"`
	// Root is the uuid of the compute node, Node its name where it was known.
	Root string `json:"root"`
	Node string `json:"node,omitempty"`
	// Begun is the time just before the request; Ended is when its outcome was known, zero if it is
	// not.
	Begun time.Time `json:"begun"`
	Ended time.Time `json:"ended,omitzero"`
	// Outcome is "" until it is known. "unknown" means that it cannot be found out any more.
	Outcome reportclient.ReshapeOutcome `json:"outcome,omitempty"`
	// Compared says that the outcome was not answered but found by comparing, after a crash or a
	// lost reply.
	Compared bool `json:"compared,omitempty"`
	// Undoes is the ID of the reshape that this one takes back, or 0.
	Undoes int64 `json:"undoes,omitempty"`
	// FromLayout and ToLayout are the layout versions of the tree before and after, 0 if the driver
	// has none.
	FromLayout int `json:"from_shape,omitempty"`
	ToLayout   int `json:"to_shape,omitempty"`
	// Renames are the resource classes that get another name, by their former ones.
	Renames map[string]string `json:"class_renames,omitempty"`
	// Reshape is the request, with what was there before.
	Reshape *reportclient.Reshape `json:"reshape"`

	// File is the path of the entry. If its content cannot be read, Err wraps [ErrUnreadable],
	// Damage is the same as text, for JSON, and only the ID, the Root and whether it is open are
	// known.
	File   string `json:"-"`
	Err    error  `json:"-"`
	Damage string `json:"damage,omitempty"`
}

// file is an entry as it is on disk.
type file struct {
	Entry
	Version int `json:"version"`
	// Former is what was there before, and Request the body of the POST as it is sent. They are
	// encoded once, and copied when the outcome is recorded.
	Former  json.RawMessage `json:"reshape"`
	Request json.RawMessage `json:"request,omitempty"`
}

// Open reports whether the outcome is not known.
func (e Entry) Open() bool { return e.Outcome == "" }

// The disk is the machine's, but in tests.
type (
	disk     = files.Disk
	realDisk = files.OS
)

// Journal is the journal of one state directory, which must belong to this process alone (the agent
// holds it locked). It is what [reportclient.Config] wants as its ReshapeLog. All methods may be
// called at any time from any goroutine.
type Journal struct {
	dir  string
	disk disk
	now  func() time.Time

	mu     sync.Mutex
	loaded bool
	next   int64
	open   map[string][]file // by root
	labels map[string]Label
}

var _ reportclient.ReshapeLog = (*Journal)(nil)

// Label has the fields of a node's next entry that do not follow from the reshape itself.
type Label struct {
	// Node is the name of the compute node.
	Node string
	// Undoes is the ID of the reshape that is taken back, or 0.
	Undoes int64
	// FromLayout and ToLayout are the layout versions of the tree before and after, 0 if unknown.
	FromLayout, ToLayout int
	// Renames are the resource classes that get another name, by their former ones.
	Renames map[string]string
}

// New returns the journal of a state directory. It touches nothing on disk before the first call of
// another method.
func New(stateDir string) *Journal {
	return &Journal{dir: filepath.Join(stateDir, DirName),
		disk: realDisk{}, now: time.Now, open: map[string][]file{}, labels: map[string]Label{}}
}

// Dir is where the entries are.
func (j *Journal) Dir() string { return j.dir }

// Load reads the journal, and removes files that a crash left incomplete. It returns the finished
// entries that cannot be read, for the log. [Journal.Unresolved] returns the unfinished ones.
func (j *Journal) Load() (damaged []Entry, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.load()
}

func (j *Journal) load() (damaged []Entry, err error) {
	if j.loaded {
		return nil, nil
	}
	names, err := list(j.dir)
	if err != nil {
		return nil, err
	}
	j.next = 1
	clear(j.open)
	whole := map[string]bool{}
	for _, name := range names {
		e := readFile(j.dir, name)
		whole[name] = true
		j.next = e.ID + 1
		switch {
		case e.Open():
			j.open[e.Root] = append(j.open[e.Root], e)
		case e.Err != nil:
			damaged = append(damaged, e.Entry)
		}
	}
	j.sweep(whole)
	j.loaded = true
	return damaged, nil
}

// sweep removes files that a crash left half written, and those of entries that were finished
// since. That it may fail is no concern: they mean nothing.
func (j *Journal) sweep(whole map[string]bool) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return
	}
	for _, f := range entries {
		_, _, open, ok := parseName(f.Name())
		if strings.HasPrefix(f.Name(), files.TmpPrefix) || ok && open && !whole[f.Name()] {
			_ = j.disk.Remove(filepath.Join(j.dir, f.Name()))
		}
	}
}

// Unresolved returns the reshapes of a node whose outcome is not known, oldest first. Only the
// first call reads the disk.
//
// An entry with an Err cannot be compared with Placement, because its request is unknown.
func (j *Journal) Unresolved(root string) ([]Entry, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.load(); err != nil {
		return nil, err
	}
	var out []Entry
	for _, e := range j.open[root] {
		out = append(out, e.Entry)
	}
	return out, nil
}

// History returns the entries of one node, oldest first, without those that cannot be read. It
// reads the disk.
func (j *Journal) History(root string) ([]Entry, error) {
	names, err := list(j.dir)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, name := range names {
		if _, of, _, _ := parseName(name); of != root {
			continue
		}
		if e := readEntry(j.dir, name); e.Err == nil {
			out = append(out, e)
		}
	}
	return out, nil
}

// SetLabel sets the label of a node's next entries.
func (j *Journal) SetLabel(root string, label Label) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.labels[root] = label
}

// Begin writes a reshape to disk. After an error it may not be there, and must not be posted. It
// fails, too, if the node has a reshape whose outcome is not known yet.
func (j *Journal) Begin(root string, r *reportclient.Reshape) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.load(); err != nil {
		return err
	}
	if open := j.open[root]; len(open) > 0 {
		return fmt.Errorf("the journal of reshapes: the outcome of reshape %d of this node is not known yet",
			open[0].ID)
	}
	label := j.labels[root]
	e := file{Version: version, Entry: Entry{
		Version: 1, ID: j.next, Root: root, Node: label.Node, Begun: j.now().UTC(), Undoes: label.Undoes,
		FromLayout: label.FromLayout, ToLayout: label.ToLayout, Renames: label.Renames, Reshape: r,
	}}
	err := e.encode()
	if err == nil {
		err = files.MakeDir(j.disk, j.dir)
	}
	if err != nil {
		return fmt.Errorf("the journal of reshapes: %w", err)
	}
	e.File = filepath.Join(j.dir, fileName(e.ID, root, true))
	if err := j.write(e); err != nil {
		// It may be there all the same: the directory was not synced. Nothing was posted, so it
		// must not be found later.
		return errors.Join(err, j.withdraw(e))
	}
	j.next++
	j.open[root] = []file{e}
	return nil
}

// encode makes the file's form of the reshape.
func (f *file) encode() (err error) {
	if f.Request, err = f.Reshape.Request(); err == nil {
		f.Former, err = json.Marshal(f.Reshape.WithoutRequest())
	}
	return err
}

// withdraw removes the file of an entry that could not be made safe. Where that fails too, the
// entry is left open: comparing will find that it did not happen.
func (j *Journal) withdraw(e file) error {
	if _, err := os.Lstat(e.File); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := j.disk.Remove(e.File); err != nil {
		j.next++
		j.open[e.Root] = append(j.open[e.Root], e)
		return fmt.Errorf("the journal of reshapes: %w", err)
	}
	return nil
}

// End records the outcome of the reshape that was begun last. "unknown" leaves it unresolved, so
// that a later comparison can find out.
func (j *Journal) End(root string, outcome reportclient.ReshapeOutcome) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if outcome == reportclient.ReshapeUnknown {
		return nil
	}
	open := j.open[root]
	if len(open) == 0 {
		return errors.New("the journal of reshapes: an outcome arrived for a reshape that was not begun")
	}
	return j.finish(open[len(open)-1], outcome, false)
}

// Resolve records the outcome found for an unresolved reshape; "unknown" is final here.
func (j *Journal) Resolve(e Entry, outcome reportclient.ReshapeOutcome) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := slices.IndexFunc(j.open[e.Root], func(o file) bool { return o.ID == e.ID })
	if at < 0 {
		return fmt.Errorf("the journal of reshapes: the outcome of reshape %d is known already", e.ID)
	}
	return j.finish(j.open[e.Root][at], outcome, true)
}

func (j *Journal) finish(e file, outcome reportclient.ReshapeOutcome, compared bool) error {
	before := e.File
	e.Outcome, e.Ended, e.Compared = outcome, j.now().UTC(), compared
	e.File = filepath.Join(j.dir, fileName(e.ID, e.Root, false))
	if err := j.write(e); err != nil {
		return err
	}
	// From here on the entry is finished, whatever becomes of the file that it had before.
	j.open[e.Root] = slices.DeleteFunc(j.open[e.Root], func(o file) bool { return o.ID == e.ID })
	_ = j.disk.Remove(before)
	j.trim()
	return nil
}

// trim removes the oldest finished entries. It is housekeeping: what cannot be removed now is tried
// again at the next end.
func (j *Journal) trim() {
	names, err := list(j.dir)
	if err != nil {
		return
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, _, open, _ := parseName(name)
		return open
	})
	excess := len(names) - keep
	if excess <= 0 {
		return
	}
	var refused, others []string
	for _, name := range names {
		if readEntry(j.dir, name).Outcome.DidNotHappen() {
			refused = append(refused, name)
		} else {
			others = append(others, name)
		}
	}
	for _, name := range append(refused, others...)[:excess] {
		_ = j.disk.Remove(filepath.Join(j.dir, name))
	}
}

// write puts an entry in place, whole and synced.
func (j *Journal) write(e file) error {
	body, err := json.Marshal(e)
	if err == nil {
		err = files.ReplaceOn(j.disk, e.File, append(body, '\n'))
	}
	if err != nil {
		return fmt.Errorf("the journal of reshapes: %w", err)
	}
	return nil
}
