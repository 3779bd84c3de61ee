// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Verdict is how an extra spec or a property is handled.
type Verdict string

// The verdicts.
const (
	// Honoured: servers have what it asks for, or are refused.
	Honoured Verdict = "honoured"
	// Harmless: it asks for nothing that a server could lack.
	Harmless Verdict = "harmless"
	// Refused: it asks for what no server here has.
	Refused Verdict = "refused"
)

// Row is one extra spec or property, or several that are alike.
type Row struct {
	// Name is the name; a * stands for any text.
	Name string
	// What it asks for, and why it is refused or harmless.
	What, Why string
	Verdict   Verdict
	// Accepts are values of a refused one that are accepted, in lower case: they ask for what every
	// server has anyway.
	Accepts []string
	// Values are what the value of an honoured one may be.
	Values Values
}

// accepts reports whether a value is accepted.
func (r *Row) accepts(value string) bool {
	return r.Verdict != Refused || slices.Contains(r.Accepts, strings.ToLower(strings.TrimSpace(value)))
}

// RefusedError says which extra spec of a flavor, or which property of an image, is refused.
type RefusedError struct {
	// Image says that it is a property of an image.
	Image       bool
	Name, Value string
	Row         Row
}

// Error names it, where it is from, and why it is refused.
func (e *RefusedError) Error() string {
	kind := "The extra spec %.255s=%.64s of the flavor"
	if e.Image {
		kind = "The property %.255s=%.64s of the image"
	}
	return fmt.Sprintf(kind+" is not supported here: %s.", e.Name, e.Value, e.Row.Why)
}

// Check refuses extra specs of a flavor that no server would have, and values that mean nothing,
// the first by name. The error is a *[RefusedError] or a *[ValueError].
func Check(specs map[string]string) error { return check(specs, Find, false) }

// CheckImage does the same for the properties of an image.
func CheckImage(properties map[string]string) error { return check(properties, FindImage, true) }

func check(all map[string]string, find func(string) Row, image bool) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		row := find(name)
		if !row.accepts(all[name]) {
			return &RefusedError{Image: image, Name: name, Value: all[name], Row: row}
		}
		if problem := row.Values.problem(all[name]); problem != "" {
			return &ValueError{Image: image, Name: name, Value: all[name], Problem: problem}
		}
	}
	return nil
}

// Find is the row of an extra spec: the first that its name fits. There is one for every name.
func Find(name string) Row { return first(Flavor, name) }

// FindImage is the row of a property of an image.
func FindImage(name string) Row { return first(Image, name) }

// otherNames is the row of names in namespaces that Nova does not read.
const otherNames = "*:*"

// Other reports whether a name is in a namespace that neither Nova nor the compute API reads.
func Other(name string) bool { return Find(name).Name == otherNames }

// Unread are the extra specs that nothing reads but, perhaps, a driver: those in other namespaces
// that begin with none of the prefixes. They are sorted.
func Unread(specs map[string]string, prefixes []string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		read := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if Other(name) && !slices.ContainsFunc(prefixes, read) {
			names = append(names, name)
		}
	}
	return names
}

func first(rows []Row, name string) Row {
	for _, row := range rows {
		if fits(row.Name, name) {
			return row
		}
	}
	return rows[len(rows)-1] // it fits everything
}

// fits reports whether a name is that of a row.
func fits(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == name
	}
	rest, is := strings.CutPrefix(name, parts[0])
	for _, part := range parts[1 : len(parts)-1] {
		var before bool
		if _, rest, before = strings.Cut(rest, part); !before {
			return false
		}
	}
	return is && strings.HasSuffix(rest, parts[len(parts)-1])
}
