// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Limits on what is read.
const (
	maxFileSize = 1 << 20 // Bytes of one file.
	maxFiles    = 1000    // Files of conf.d.
)

// Options say where the configuration is. The zero value is what the daemon
// uses: DefaultFile and the environment of the process.
type Options struct {
	// File is the main file. When it is empty DefaultFile is read if there is
	// one; a file that is named must exist. Files conf.d/*.toml beside it are
	// applied after it, sorted by name.
	File string
	// Root is put in front of every path that is read, and never shown; it is
	// for looking at the file system of another machine.
	Root string
	// Environ is the environment, as os.Environ returns it; nil means that of
	// the process.
	Environ []string
	// IgnoreEnv are variables that begin with COMPUTE_AGENT_ but are read by
	// other parts of the program.
	IgnoreEnv []string
	// Uses are the sections whose systemd credentials must exist; nil means all. systemd passes a
	// credential to one unit only, but several services read the same files.
	Uses []string
	// Unit is the unit whose configuration it is, where it is an instance of a template: its
	// credentials have a directory of its own. Empty: those of the template.
	Unit string
	// Overrides are applied last.
	Overrides []Override
	// Hostname is what an empty agent.host means; nil means os.Hostname.
	Hostname func() (string, error)
	// UID is the user that directories are chosen for; nil means os.Geteuid.
	UID func() int
	// Executable is the agent's own, without symbolic links; nil means os.Executable.
	Executable func() (string, error)
}

// Override is a command-line flag that stands for a key.
type Override struct {
	Key   string `json:"key"`   // Such as "agent.state_dir" or "drivers.libvirt.enabled".
	Value string `json:"value"` // As a variable would hold it.
	Flag  string `json:"flag"`  // Such as "--state-dir", for messages.
}

// Load reads, merges and checks the configuration. Its error is a Problems that
// holds everything that is wrong, each an ErrInvalid. The Config is never nil:
// beside an error it holds what could be read, over the defaults, and is good
// for diagnosis only.
func Load(opts Options) (*Config, error) {
	l := &loader{opts: opts, env: environment(opts.Environ)}
	l.cfg = &Config{Drivers: map[string]*Driver{}, sources: map[string]Source{}, file: opts.File}
	for _, k := range l.cfg.keys() {
		k.reset()
	}
	if l.cfg.file == "" {
		l.cfg.file = DefaultFile
	}
	for _, file := range l.fileNames() {
		l.applyFile(file)
	}
	l.applyEnvironment()
	l.applyOverrides()
	l.resolve()
	var bad Problems
	if err := l.cfg.Validate(); errors.As(err, &bad) {
		l.problems = append(l.problems, bad...)
	}
	return l.cfg, l.problems.err()
}

// loader carries one run of Load.
type loader struct {
	opts     Options
	env      map[string]string
	cfg      *Config
	problems Problems
}

func (l *loader) report(p *Problem) {
	if p != nil {
		l.problems = append(l.problems, p)
	}
}

func (l *loader) path(name string) string {
	if l.opts.Root == "" {
		return name
	}
	return filepath.Join(l.opts.Root, name)
}

// shown is a text about files without the root that their paths begin with.
func (l *loader) shown(text string) string {
	if l.opts.Root == "" {
		return text
	}
	return strings.ReplaceAll(text, l.opts.Root, "")
}

// fileNames are the files to read, in order.
func (l *loader) fileNames() []string {
	main := l.cfg.file
	var names []string
	_, err := os.Stat(l.path(main))
	switch {
	case err == nil:
		names = append(names, main)
	case l.opts.File == "" && errors.Is(err, fs.ErrNotExist):
	default:
		l.report(l.fileProblem(main, err))
	}
	dir := filepath.Join(filepath.Dir(main), "conf.d")
	entries, err := os.ReadDir(l.path(dir))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			l.report(l.fileProblem(dir, err))
		}
		return names
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".toml") && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	if len(names) > maxFiles {
		l.report(l.fileProblem(dir, fmt.Errorf("%d files, more than the %d that are read", len(names), maxFiles)))
		names = names[:maxFiles]
	}
	return names
}

func (l *loader) fileProblem(name string, err error) *Problem {
	hint := ""
	why, command := files.WhyDenied(err)
	switch {
	case command != "":
		hint = "run: " + l.shown(command)
	case errors.Is(err, fs.ErrNotExist):
		hint = "create it (`compute-agent config defaults` writes one to begin with) or name another with --config"
	case errors.Is(err, errNotRegular), errors.Is(err, errTooBig):
		hint = "put a TOML file there"
	}
	what := "cannot be read: "
	var path *fs.PathError
	if errors.As(err, &path) {
		what += path.Err.Error()
	} else {
		what += err.Error()
	}
	if why != "" {
		what += ": " + l.shown(why)
	}
	return &Problem{Source: Source{Kind: FromFile, Name: name}, What: what, Hint: hint, cause: err}
}

var (
	errNotRegular = errors.New("not a regular file")
	errTooBig     = errors.New("larger than 1 MiB")
)

// readFile reads a configuration file; a device, a pipe or a huge file is
// refused before it can hold the agent up.
func readFile(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err == nil && len(data) > maxFileSize {
		err = errTooBig
	}
	return data, err
}

func (l *loader) applyFile(name string) {
	data, err := readFile(l.path(name))
	if err != nil {
		l.report(l.fileProblem(name, err))
		return
	}
	l.cfg.files = append(l.cfg.files, name)
	doc, bad := parse(name, data)
	if bad != nil {
		l.report(bad)
		return
	}
	l.applyDocument(doc)
}

// applyDocument applies the tables of a file in the order of its lines, so that
// problems are listed as a reader meets them.
func (l *loader) applyDocument(doc *document) {
	for _, name := range doc.inOrder("", doc.tree) {
		source := doc.sources[dotted(name)]
		table, isTable := doc.tree[name].(map[string]any)
		s := l.cfg.section(name)
		switch {
		case s == nil && name != driversSection:
			l.report(unknownSection(name, isTable).at(dotted(name), source))
		case !isTable:
			l.report(faultf(fmt.Sprintf("write [%s] on a line of its own and the keys below it", name),
				"is a section, not a key").at(name, source))
		case s == nil:
			l.applyDrivers(doc, table)
		default:
			l.applyTable(doc, name, s.keys, table)
		}
	}
}

func (l *loader) applyDrivers(doc *document, drivers map[string]any) {
	for _, name := range doc.inOrder(driversSection, drivers) {
		path := dotted(driversSection, name)
		source := doc.sources[path]
		table, isTable := drivers[name].(map[string]any)
		if !isTable {
			l.report(faultf("write [drivers.NAME] and the keys below it",
				"%s is not a driver's table", describe(drivers[name])).at(path, source))
			continue
		}
		d, bad := l.driver(name)
		if bad != nil {
			l.report(bad.at(path, source))
			continue
		}
		l.cfg.sources[path] = source
		l.applyTable(doc, path, d.keys(), table)
	}
}

// applyTable applies the keys of a table, and of the tables in it.
func (l *loader) applyTable(doc *document, path string, keys []key, table map[string]any) {
	for _, k := range doc.inOrder(path, table) {
		name := path + "." + quoteKey(k)
		below := keysBelow(keys, k)
		inner, isTable := table[k].(map[string]any)
		if below != nil && isTable {
			l.applyTable(doc, name, below, inner)
			continue
		}
		var bad *fault
		switch known := named(keys, k); {
		case below != nil:
			bad = wrongType(table[k], "a table, such as ["+name+"] on a line of its own")
		case known == nil || strings.Contains(k, "."):
			bad = unknownKey(k, path, keys)
		default:
			bad = known.set(table[k])
		}
		if bad != nil {
			l.report(bad.at(name, doc.sources[name]))
			continue
		}
		l.cfg.sources[name] = doc.sources[name]
		if isTable {
			for inside, source := range doc.sources {
				if strings.HasPrefix(inside, name+".") {
					l.cfg.sources[inside] = source
				}
			}
		}
	}
}

// driver is the driver of that name, made when it is new.
func (l *loader) driver(name string) (*Driver, *fault) {
	if d, ok := l.cfg.Drivers[name]; ok {
		return d, nil
	}
	if len(name) > maxDriverName || !driverName.MatchString(name) {
		return nil, faultf("use lower-case letters, digits and single dashes, at most 40, such as \"libvirt\"",
			"%s cannot name a driver", shown(name))
	}
	d := newDriver()
	l.cfg.Drivers[name] = d
	return d, nil
}

func newDriver() *Driver {
	d := &Driver{}
	for _, k := range d.keys() {
		k.reset()
	}
	return d
}

// inOrder are the keys of a table in the order of the file.
func (d *document) inOrder(prefix string, table map[string]any) []string {
	keys := sortedKeys(table)
	place := func(k string) Source {
		if prefix == "" {
			return d.sources[dotted(k)]
		}
		return d.sources[prefix+"."+quoteKey(k)]
	}
	slices.SortStableFunc(keys, func(a, b string) int {
		x, y := place(a), place(b)
		if x.Line != y.Line {
			return x.Line - y.Line
		}
		return x.column - y.column
	})
	return keys
}

func unknownSection(name string, isTable bool) *fault {
	all := []string{}
	for _, s := range declared() {
		all = append(all, s.Name)
	}
	f := faultf("the sections are "+strings.Join(all, ", "), "there is no such section")
	if !isTable {
		f = faultf("write it below the section it belongs to; the sections are "+strings.Join(all, ", "),
			"this key is outside every section")
	}
	if near := nearest(name, all); near != "" {
		f.hint = "did you mean " + near + "? " + f.hint
	}
	f.secret = looksSecret(name)
	return f
}

// unknownKey is about a key that a table does not have.
func unknownKey(name, path string, keys []key) *fault {
	var known, tables []string
	for _, k := range keys {
		if table, _, below := strings.Cut(k.Name, "."); !below {
			known = append(known, k.Name)
		} else if !slices.Contains(tables, table) {
			tables = append(tables, table)
		}
	}
	known = append(known, tables...)
	f := faultf("the keys of ["+path+"] are "+strings.Join(known, ", "), "there is no such key in [%s]", path)
	if near := nearest(name, known); near != "" {
		f.hint = "did you mean " + near + "? " + f.hint
	}
	if looksSecret(name) {
		f.secret = true
		f.hint = "secrets are not written here: put the secret into a file of its own and name the file; " + f.hint
	}
	if named(keys, "config") != nil {
		f.hint += "; the driver's own keys belong in [" + path + ".config]"
	}
	return f
}
