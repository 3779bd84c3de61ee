// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// The few figures of /proc and file systems that are compared with libvirt's, or that libvirt's
// test driver does not know.
//
// A missing or damaged file is an error, never a zero.

// Root is the directory that has sys and proc in it: "/", or another one in tests and
// demonstrations.
type Root string

func (r Root) path(p string) string { return filepath.Join("/", string(r), p) }

func (r Root) read(p string) (text string, err error) {
	d, err := OpenDir(string(r))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Text(p)
}

func (r Root) cpuList(p string) ([]int, error) {
	text, err := r.read(p)
	if err != nil {
		return nil, err
	}
	cpus, err := machine.ParseCPUs(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.path(p), err)
	}
	return cpus, nil
}

// OnlineCPUs are the numbers of the CPUs that are online.
func (r Root) OnlineCPUs() ([]int, error) {
	const file = "sys/devices/system/cpu/online"
	cpus, err := r.cpuList(file)
	if err == nil && len(cpus) == 0 {
		err = fmt.Errorf("%s names no CPU", r.path(file))
	}
	return cpus, err
}

// SMT reports whether the kernel runs several threads of a core, as far as it says.
func (r Root) SMT() bool {
	text, err := r.read("sys/devices/system/cpu/smt/control")
	return err == nil && strings.TrimSpace(text) == "on"
}

// Governors are the governors of CPUs, without those that have none: offline ones, and all on a
// host without frequency scaling.
func (r Root) Governors(cpus []int) map[int]string {
	out := map[int]string{}
	for _, cpu := range cpus {
		if text, err := r.read(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu)); err == nil {
			out[cpu] = strings.TrimSpace(text)
		}
	}
	return out
}

// MemTotalKiB is the memory that the kernel manages.
func (r Root) MemTotalKiB() (uint64, error) {
	text, err := r.read("proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		value, ok := strings.CutPrefix(line, "MemTotal:")
		if !ok {
			continue
		}
		fields := strings.Fields(value)
		if len(fields) == 2 && fields[1] == "kB" {
			if n, err := strconv.ParseUint(fields[0], 10, 63); err == nil {
				return n, nil
			}
		}
		return 0, fmt.Errorf("%s: %.60q is not an amount in kB", r.path("proc/meminfo"), strings.TrimSpace(line))
	}
	return 0, fmt.Errorf("%s has no line MemTotal", r.path("proc/meminfo"))
}

const cpuInfo = "proc/cpuinfo"

// CPUFlags are the flags of /proc/cpuinfo that all CPUs have, sorted.
//
// Cost: that of [Processors].
func (r Root) CPUFlags() ([]string, error) {
	processors, err := Processors(string(r))
	if err != nil {
		return nil, err
	}
	if len(processors) == 0 {
		return nil, fmt.Errorf("%s describes no CPU", r.path(cpuInfo))
	}
	common := processors[0].Flags
	for _, p := range processors[1:] {
		common = slices.DeleteFunc(common, func(f string) bool { _, ok := slices.BinarySearch(p.Flags, f); return !ok })
	}
	return common, nil
}

// Filesystem is the size of the file system that holds a directory, and the directory that was
// looked at.
type Filesystem struct {
	Path  string
	Bytes uint64
}

// StatFilesystem looks at an existing directory.
func StatFilesystem(dir string) (Filesystem, error) {
	var st syscall.Statfs_t
	for {
		err := syscall.Statfs(dir, &st)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EINTR) {
			return Filesystem{}, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
	}
	size := uint64(st.Frsize)
	if size == 0 {
		size = uint64(st.Bsize)
	}
	if size == 0 || st.Blocks > (1<<63)/size {
		return Filesystem{}, fmt.Errorf("the file system of %s reports the impossible size of %d blocks of %d bytes",
			dir, st.Blocks, size)
	}
	return Filesystem{Path: dir, Bytes: st.Blocks * size}, nil
}

// NearestDir is dir, or the closest directory above it that exists.
func NearestDir(dir string) string {
	for dir != "/" && dir != "." {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			return dir
		}
		dir = filepath.Dir(dir)
	}
	return dir
}
