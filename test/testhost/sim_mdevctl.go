// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// definition is a mediated device that mdevctl knows, active or not.
type definition struct {
	Parent, UUID string
	Device       device
}

// device is the file format of mdevctl.
type device struct {
	Type  string           `json:"mdev_type"`
	Start string           `json:"start"`
	Attrs []map[string]any `json:"attrs,omitempty"`
}

// inactive are the definitions that a host starts with.
func inactive(h Host) (list []definition) {
	from := func(parent string, p MdevParent) {
		for _, m := range p.Mdevs {
			if m.Inactive {
				list = append(list,
					definition{Parent: parent, UUID: m.UUID, Device: device{Type: m.Type, Start: "manual"}})
			}
		}
	}
	for _, d := range h.Devices {
		from(d.Address, d.MdevParent)
	}
	for _, p := range h.Virtual {
		from(p.Name, p.MdevParent)
	}
	return list
}

func definedFile(dir string) string { return filepath.Join(dir, "mdevs.json") }

func saveDefined(dir string, list []definition) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return os.WriteFile(definedFile(dir), text, 0o600)
}

func loadDefined(dir string) (list []definition, err error) {
	text, err := os.ReadFile(definedFile(dir))
	if err != nil {
		return nil, err
	}
	return list, json.Unmarshal(text, &list)
}

// mdevctl is the part of the tool of that name that libvirt 9 to 11 use; dir is the simulation's,
// root has sys in it.
func mdevctl(dir, root string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if err := (&tool{dir: dir, tree: Tree(root), in: stdin, out: stdout}).run(args); err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	return 0
}

type tool struct {
	dir     string
	tree    Tree
	in      io.Reader
	out     io.Writer
	options map[string]string
	list    []definition
}

func (t *tool) run(args []string) (err error) {
	if len(args) == 0 {
		return errors.New("mdevctl: no command")
	}
	t.options = options(args[1:])
	unlock, err := t.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if t.list, err = loadDefined(t.dir); err != nil {
		return err
	}
	switch args[0] {
	case "list", "types":
		return t.print()
	case "start":
		return t.start()
	case "stop":
		return t.stop()
	case "define":
		return t.define()
	case "undefine":
		t.list = slices.DeleteFunc(t.list, func(d definition) bool { return d.UUID == t.options["uuid"] })
		return saveDefined(t.dir, t.list)
	case "modify":
		return t.modify()
	}
	return fmt.Errorf("mdevctl: unknown command %q", args[0])
}

// lock keeps two runs of the tool apart.
func (t *tool) lock() (func() error, error) {
	f, err := os.OpenFile(filepath.Join(t.dir, "mdevctl.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}

// options reads --name value and --name=value, and -p, -u. What needs no value has "".
func options(args []string) map[string]string {
	o := map[string]string{}
	short := map[string]string{"-p": "parent", "-u": "uuid", "-d": "defined", "-t": "type",
		"-a": "auto", "-m": "manual"}
	flags := []string{"defined", "dumpjson", "auto", "manual", "live"}
	for i := 0; i < len(args); i++ {
		name, value, given := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		if long, ok := short[args[i]]; ok {
			name = long
		}
		if !given && !slices.Contains(flags, name) && i+1 < len(args) {
			i++
			value = args[i]
		}
		o[name] = value
	}
	return o
}

// print answers with all definitions: by parent, each an object with its UUID as the key.
func (t *tool) print() error {
	parents := map[string][]map[string]device{}
	for _, d := range t.list {
		parents[d.Parent] = append(parents[d.Parent], map[string]device{d.UUID: d.Device})
	}
	out := []map[string][]map[string]device{}
	if len(parents) > 0 {
		out = append(out, parents)
	}
	return json.NewEncoder(t.out).Encode(out)
}

// given is the device described by --jsonfile.
func (t *tool) given() (d device, err error) {
	file := t.options["jsonfile"]
	in := t.in
	if file != "/dev/stdin" {
		f, err := os.Open(file)
		if err != nil {
			return d, err
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	err = json.NewDecoder(io.LimitReader(in, 1<<20)).Decode(&d)
	if err == nil && d.Type == "" {
		err = errors.New("mdevctl: no mdev_type in the description")
	}
	return d, err
}

// uuid returns the requested one, or a new one, which it prints.
func (t *tool) uuid() (string, error) {
	if uuid := t.options["uuid"]; uuid != "" {
		return uuid, nil
	}
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	uuid := fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	_, err := fmt.Fprintln(t.out, uuid)
	return uuid, err
}

func (t *tool) start() error {
	d := definition{Parent: t.options["parent"]}
	var err error
	if t.options["jsonfile"] != "" {
		d.Device, err = t.given()
	} else {
		i := slices.IndexFunc(t.list, func(d definition) bool { return d.UUID == t.options["uuid"] })
		if i < 0 {
			return fmt.Errorf("mdevctl: device %q: %w", t.options["uuid"], fs.ErrNotExist)
		}
		d = t.list[i]
	}
	if err != nil {
		return err
	}
	if d.UUID, err = t.uuid(); err != nil {
		return err
	}
	groups, err := os.ReadDir(t.tree.Path("sys/kernel/iommu_groups"))
	if err != nil {
		return err
	}
	at, err := t.tree.AddMdev(d.Parent, d.Device.Type, d.UUID, 5000+len(groups))
	if err != nil {
		return err
	}
	if os.Getenv(vfioEnv) != "" {
		if err := vfioNodes(); err != nil {
			return err
		}
	}
	return Uevent{Action: "add", Path: at, Subsystem: "mdev"}.send()
}

func (t *tool) stop() error {
	at, err := t.tree.RemoveMdev(t.options["uuid"])
	if err != nil {
		return err
	}
	return Uevent{Action: "remove", Path: at, Subsystem: "mdev"}.send()
}

func (t *tool) define() error {
	given, err := t.given()
	if err != nil {
		return err
	}
	uuid, err := t.uuid()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(t.list, func(d definition) bool { return d.UUID == uuid }) {
		return fmt.Errorf("mdevctl: device %s: %w", uuid, fs.ErrExist)
	}
	t.list = append(t.list, definition{Parent: t.options["parent"], UUID: uuid, Device: given})
	return saveDefined(t.dir, t.list)
}

func (t *tool) modify() error {
	i := slices.IndexFunc(t.list, func(d definition) bool { return d.UUID == t.options["uuid"] })
	if i < 0 {
		return fmt.Errorf("mdevctl: device %q: %w", t.options["uuid"], fs.ErrNotExist)
	}
	if _, auto := t.options["auto"]; auto {
		t.list[i].Device.Start = "auto"
	}
	if _, manual := t.options["manual"]; manual {
		t.list[i].Device.Start = "manual"
	}
	return saveDefined(t.dir, t.list)
}
