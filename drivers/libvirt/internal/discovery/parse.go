// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// malformed is the error about a file's content.
func malformed(d *Dir, name, content, format string, args ...any) error {
	return fmt.Errorf("%s: %.60q: %s", d.Path(name), content, fmt.Sprintf(format, args...))
}

func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// exists reports whether a directory is there, readable or not.
func exists(d *Dir, name string) bool {
	_, err := d.Names(name)
	return !absent(err)
}

// line is the only line of a file.
func line(d *Dir, name string) (string, error) {
	text, err := d.Text(name)
	return strings.TrimSuffix(text, "\n"), err
}

// value reads a file of one line with a parser whose errors say what the line is not.
func value[T any](d *Dir, name string, parse func(string) (T, error)) (T, error) {
	var none T
	text, err := line(d, name)
	if err != nil {
		return none, err
	}
	v, err := parse(text)
	if err != nil {
		return none, malformed(d, name, text, "%v", err)
	}
	return v, nil
}

// maxCount is more than there is of anything: pages, bytes of memory in KiB.
const maxCount = 1 << 50

// count reads a number of things, in decimal.
func count(text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) || err == nil && n > maxCount {
		return 0, fmt.Errorf("the number is above %d", uint64(maxCount))
	}
	if err != nil {
		return 0, errors.New("not a count")
	}
	return n, nil
}

// number reads a small number of things.
func number(text string) (int, error) {
	n, err := count(text)
	if err == nil && n > 1<<20 {
		return 0, fmt.Errorf("the number is above %d", 1<<20)
	}
	return int(n), err
}

// ordinal reads the number that something has; -1 says that it has none.
func ordinal(text string) (int, error) {
	if text == "-1" {
		return None, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, errors.New("neither a number nor -1")
	}
	return int(n), nil
}

// hexadecimal reads a number of as many bits as the kernel prints it with: 0x10de.
func hexadecimal(width int) func(string) (uint32, error) {
	return func(text string) (uint32, error) {
		digits, ok := strings.CutPrefix(text, "0x")
		n, err := strconv.ParseUint(digits, 16, 32)
		if !ok || err != nil || len(digits) != width/4 || bits.Len64(n) > width {
			return 0, fmt.Errorf("not 0x and %d hexadecimal digits", width/4)
		}
		return uint32(n), nil
	}
}

// yesNo reads a parameter of a module, which older kernels print as a number.
func yesNo(text string) (bool, error) {
	switch text {
	case "Y", "1":
		return true, nil
	case "N", "0":
		return false, nil
	}
	return false, errors.New("neither Y, N, 1 nor 0")
}

// cpuSet reads a list of CPUs or cells: 0-3,8.
func cpuSet(text string) ([]int, error) {
	if text == "(null)" { // what Linux prints for a mask that it did not need to make
		return nil, nil
	}
	return machine.ParseCPUs(text)
}

// memTotal finds the memory in a meminfo, in KiB: the number after a prefix, on the first line that
// has it.
func memTotal(text, prefix string) (uint64, error) {
	for l := range strings.Lines(text) {
		rest, ok := strings.CutPrefix(l, prefix)
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			return 0, fmt.Errorf("%.60q is not an amount in kB", strings.TrimSpace(l))
		}
		n, err := count(fields[0])
		if err != nil {
			return 0, fmt.Errorf("%.60q: %w", strings.TrimSpace(l), err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("it has no line %q", prefix)
}

// capacity finds a resource in the misc cgroup controller's file; 0 if it is not there.
func capacity(text, resource string) (int, error) {
	for l := range strings.Lines(text) {
		fields := strings.Fields(l)
		if len(fields) > 0 && fields[0] == resource {
			if len(fields) != 2 {
				return 0, fmt.Errorf("%.60q is not a resource and a number", strings.TrimSpace(l))
			}
			return number(fields[1])
		}
	}
	return 0, nil
}
