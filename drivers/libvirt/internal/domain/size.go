// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// sizeKiB reads an amount of memory in libvirt's units, KiB if there is none, rounded up as libvirt does.
func sizeKiB(value, unit string) (uint64, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%.30q is no amount of memory", value)
	}
	factor, err := bytesIn(unit)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%d %s is too much memory", n, unit)
	}
	return (n*factor + 1023) / 1024, nil
}

func bytesIn(unit string) (uint64, error) {
	u := strings.ToLower(unit)
	switch u {
	case "":
		return 1024, nil
	case "b", "byte", "bytes":
		return 1, nil
	}
	power := strings.IndexByte("kmgtpe", u[0]) + 1
	base := uint64(1024)
	switch u[1:] {
	case "", "ib":
	case "b":
		base = 1000
	default:
		power = 0
	}
	if power == 0 {
		return 0, fmt.Errorf("%.30q is no unit of memory", unit)
	}
	out := uint64(1)
	for range power {
		out *= base
	}
	return out, nil
}
