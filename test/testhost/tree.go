// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Tree is a rendered host: the directory that has sys and proc in it. Its methods take paths from
// there and change what the kernel shows, while readers look on.
type Tree string

// Scratch makes a directory for a tree that is not kept: in memory if this machine has /dev/shm,
// because a tree is thousands of small files. The caller removes it.
func Scratch() (string, error) {
	dir := ""
	if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
		dir = "/dev/shm"
	}
	made, err := os.MkdirTemp(dir, "th")
	if err != nil && dir != "" {
		return os.MkdirTemp("", "th")
	}
	return made, err
}

// Path is where a file of the tree is.
func (t Tree) Path(name string) string { return filepath.Join(string(t), filepath.FromSlash(name)) }

// Write makes or replaces a file with its directories, in one step, so that no reader sees half of
// it.
func (t Tree) Write(name, text string) error {
	file := t.Path(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// Read is the text of a file.
func (t Tree) Read(name string) (string, error) {
	text, err := os.ReadFile(t.Path(name))
	return string(text), err
}

// Mkdir makes a directory and those above it.
func (t Tree) Mkdir(name string) error { return os.MkdirAll(t.Path(name), 0o755) }

// Link makes a relative symbolic link, as sysfs does; the target, from the tree's root, need not
// exist.
func (t Tree) Link(name, target string) error {
	if err := t.Mkdir(filepath.Dir(name)); err != nil {
		return err
	}
	return os.Symlink(relative(path.Dir(name), target), t.Path(name))
}

// relative is the way from one directory of the tree to something in it.
func relative(from, to string) string {
	a, b := strings.Split(path.Clean(from), "/"), strings.Split(path.Clean(to), "/")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	return strings.Repeat("../", len(a)) + strings.Join(b, "/")
}

// Remove removes a file, a link or a whole directory. A missing one is an error.
func (t Tree) Remove(name string) error {
	if _, err := os.Lstat(t.Path(name)); err != nil {
		return err
	}
	return os.RemoveAll(t.Path(name))
}

// resolve follows the links of a path to where it leads, from the tree's root.
func (t Tree) resolve(name string) (string, error) {
	file, err := filepath.EvalSymlinks(t.Path(name))
	if err != nil {
		return "", err
	}
	root, err := filepath.EvalSymlinks(string(t))
	if err != nil {
		return "", err
	}
	return filepath.Rel(root, file)
}

// DevicePath is where a PCI device is shown, from the tree's root: sys/devices/pci0000:80/….
func (t Tree) DevicePath(address string) (string, error) {
	return t.resolve("sys/bus/pci/devices/" + address)
}

// parentPath finds a parent of mediated devices by its PCI address or name.
func (t Tree) parentPath(parent string) (string, error) {
	return t.resolve("sys/class/mdev_bus/" + parent)
}

// ErrNoInstance means that no more devices of a type can be made.
var ErrNoInstance = errors.New("no available instance")

// AddMdev makes a mediated device as the kernel would: its directory, its links, one available
// instance less. It returns the path of the device from the tree's root.
func (t Tree) AddMdev(parent, mdevType, uuid string, iommuGroup int) (string, error) {
	at, err := t.parentPath(parent)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(t.Path(at + "/" + uuid)); err == nil {
		return "", fmt.Errorf("mediated device %s: %w", uuid, fs.ErrExist)
	}
	if err := t.take(at+"/mdev_supported_types/"+mdevType, -1); err != nil {
		return "", err
	}
	w := writer{tree: t, made: map[string]bool{}}
	w.mdev(at, Mdev{UUID: uuid, Type: mdevType, IOMMUGroup: iommuGroup})
	return at + "/" + uuid, w.err
}

// RemoveMdev removes an active mediated device and returns its path.
func (t Tree) RemoveMdev(uuid string) (string, error) {
	at, err := t.resolve("sys/bus/mdev/devices/" + uuid)
	if err != nil {
		return "", err
	}
	kind, err := t.resolve(at + "/mdev_type")
	if err != nil {
		return "", err
	}
	links := []string{"sys/bus/mdev/devices/" + uuid, kind + "/devices/" + uuid}
	if group, err := t.resolve(at + "/iommu_group"); err == nil {
		links = append(links, group+"/devices/"+uuid)
	}
	for _, name := range append(links, at) {
		if err := t.Remove(name); err != nil {
			return "", err
		}
	}
	return at, t.take(kind, +1)
}

// take changes the available instances of a type.
func (t Tree) take(kind string, by int) error {
	text, err := t.Read(kind + "/available_instances")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	if n+by < 0 {
		return fmt.Errorf("%w of %s", ErrNoInstance, filepath.Base(kind))
	}
	return t.Write(kind+"/available_instances", fmt.Sprintf("%d\n", n+by))
}
