// SPDX-License-Identifier: Apache-2.0

package hugepages

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// ReservedKey is the name of the configuration's key, which is Nova's.
const ReservedKey = "reserved_huge_pages"

// PagesConfig are the keys about huge pages in the driver's configuration.
type PagesConfig struct {
	ReservedHugePages []ReservedPages `json:"reserved_huge_pages"`
}

// ReservedPages are huge pages that are not for guests: { node = 0, size = "2M", count = 64 }. All three keys are needed.
type ReservedPages struct {
	// Node is the number of the NUMA cell.
	Node *int `json:"node"`
	// Size is a text ("2M", "1GiB") or KiB as a number.
	Size  json.RawMessage `json:"size"`
	Count *int64          `json:"count"`
}

// Reserved are the parsed reservations.
type Reserved struct {
	list []reservation
}

type reservation struct {
	key     string
	cell    int
	sizeKiB uint64
	count   int64
}

// maxReserved bounds the list: more than any host has cells times sizes.
const maxReserved = 4096

// Parse reads the configuration, as far as it can be judged without a host. Errors are [*plugins.ConfigError].
func Parse(c PagesConfig) (Reserved, error) {
	if len(c.ReservedHugePages) > maxReserved {
		return Reserved{}, &plugins.ConfigError{Key: ReservedKey, Problem: fmt.Sprintf("has %d entries, can have %d", len(c.ReservedHugePages), maxReserved)}
	}
	type where struct {
		cell    int
		sizeKiB uint64
	}
	seen := map[where]string{}
	var r Reserved
	var all []error
	for i, written := range c.ReservedHugePages {
		one := reservation{key: fmt.Sprintf("%s[%d]", ReservedKey, i)}
		if key, err := one.parse(written); err != nil {
			all = append(all, &plugins.ConfigError{Key: one.key + key, Problem: err.Error()})
			continue
		}
		at := where{one.cell, one.sizeKiB}
		if before := seen[at]; before != "" {
			all = append(all, &plugins.ConfigError{Key: one.key, Problem: fmt.Sprintf("is about the same node and size as %s", before)})
			continue
		}
		seen[at] = one.key
		r.list = append(r.list, one)
	}
	if err := plugins.JoinConfig(all...); err != nil {
		return Reserved{}, err
	}
	return r, nil
}

// parse reads an entry; in an error, key is what is wrong.
func (r *reservation) parse(w ReservedPages) (key string, err error) {
	switch {
	case w.Node == nil:
		return ".node", errors.New("is missing: the number of a NUMA cell")
	case *w.Node < 0:
		return ".node", fmt.Errorf("%d is no number of a NUMA cell", *w.Node)
	case w.Count == nil:
		return ".count", errors.New("is missing: a number of pages")
	case *w.Count < 0 || *w.Count > providertree.MaxUnit:
		return ".count", fmt.Errorf("%d is no number of pages", *w.Count)
	case len(w.Size) == 0:
		return ".size", errors.New("is missing: \"2M\", \"1G\" or the like")
	}
	r.cell, r.count = *w.Node, *w.Count
	text := string(w.Size)
	if json.Unmarshal(w.Size, &text) != nil {
		text = string(w.Size) // a number: KiB
	}
	r.sizeKiB, err = ParseSize(text)
	return ".size", err
}

// units of sizes, in KiB.
var units = []struct {
	letter string
	kib    uint64
}{{"G", 1 << 20}, {"M", 1 << 10}, {"K", 1}}

// maxSizeKiB is more than any page has: 1 TiB.
const maxSizeKiB = 1 << 30

// ParseSize reads the size of a page, in KiB: "2M", "2MB" and "2MiB" are 2048, and so is "2048" without a unit.
func ParseSize(text string) (uint64, error) {
	bad := fmt.Errorf("%.40q is no size of pages such as \"2M\", \"1G\" or 2048 (KiB)", text)
	number, factor := strings.ToUpper(strings.TrimSpace(text)), uint64(1)
	for _, u := range units {
		if before, _, found := strings.Cut(number, u.letter); found {
			if suffix := number[len(before):]; suffix != u.letter && suffix != u.letter+"B" && suffix != u.letter+"IB" {
				return 0, bad
			}
			number, factor = before, u.kib
			break
		}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 32)
	if err != nil || n > maxSizeKiB/factor || bits.OnesCount64(n*factor) != 1 {
		return 0, bad
	}
	return n * factor, nil
}

// FormatSize is the shortest text for a size: 2M for 2048.
func FormatSize(kib uint64) string {
	for _, u := range units {
		if kib >= u.kib && kib%u.kib == 0 {
			return strconv.FormatUint(kib/u.kib, 10) + u.letter
		}
	}
	return "0K"
}

// classPrefix is followed by the size of the pages in the class's name.
const classPrefix = "CUSTOM_HUGEPAGES_"

// Class is the resource class of huge pages of a size: CUSTOM_HUGEPAGES_2M. Its unit is a page.
func Class(sizeKiB uint64) string { return classPrefix + FormatSize(sizeKiB) }

// SizeOf is the size of the pages of a class in KiB; false if the class is none of huge pages.
func SizeOf(class string) (uint64, bool) {
	size, ok := strings.CutPrefix(class, classPrefix)
	if !ok {
		return 0, false
	}
	kib, err := ParseSize(size)
	return kib, err == nil && Class(kib) == class
}
