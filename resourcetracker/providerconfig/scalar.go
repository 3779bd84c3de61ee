// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

// oldForm are plain texts that YAML 1.1, and so Nova, reads as truth values or as numbers to the
// base of 60.
var oldForm = regexp.MustCompile(
	`^(yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF)$|^[-+]?[1-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?$`)

// isText reports whether a value is a text to every reader, whichever YAML it speaks.
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" &&
		(n.Style&quoted != 0 || !oldForm.MatchString(n.Value))
}

// shown describes a value that is not what is wanted.
func shown(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str":
		if n.Style&quoted == 0 && oldForm.MatchString(n.Value) {
			return clip(n.Value) + " (to YAML 1.1 a truth value or a number)"
		}
		return "the text " + clip(n.Value)
	case "!!bool":
		return "the truth value " + n.Value
	case "!!int", "!!float":
		return "the number " + strings.Trim(clip(n.Value), `"`)
	case "!!timestamp":
		return "the date " + strings.Trim(clip(n.Value), `"`)
	}
	return "this"
}

var (
	// decimal are whole numbers that every reader takes the same way. Nova's schema takes 8.0 for
	// one, too.
	decimal = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*|[1-9][0-9]*(_[0-9]+)+)(\.0*)?$`)
	digits  = regexp.MustCompile(`^[-+]?[0-9]+$`)
)

// integer reads a whole number of at least low and at most providertree.MaxUnit.
func (p *parser) integer(n *yaml.Node, path string, low int64) (int64, bool) {
	write := fmt.Sprintf("write a whole number between %d and %d", low, int64(math.MaxInt32))
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" {
		if tag == "!!str" && digits.MatchString(n.Value) {
			write = "write it without quotes"
		}
		p.problemf(n, path, write, "must be a whole number, not %s", shown(n))
		return 0, false
	}
	if !decimal.MatchString(n.Value) {
		if exact, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64); err == nil &&
			!digits.MatchString(n.Value) {
			write = fmt.Sprintf("write %d", exact)
		} else if f, err := strconv.ParseFloat(n.Value, 64); err == nil && f == math.Trunc(f) &&
			math.Abs(f) <= math.MaxInt32 && !digits.MatchString(n.Value) {
			write = fmt.Sprintf("write %.0f", f)
		}
		what := "%s is not a whole number that all YAML parsers read the same way"
		if tag == "!!float" && !strings.ContainsAny(n.Value, "eE") {
			what = "must be a whole number, not %s"
		}
		p.problemf(n, path, write, what, shown(n))
		return 0, false
	}
	whole, _, _ := strings.Cut(strings.ReplaceAll(n.Value, "_", ""), ".")
	v, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || v < low || v > math.MaxInt32 {
		p.problemf(n, path, write, "%s is out of bounds", clip(n.Value))
		return 0, false
	}
	return v, true
}

// ratio reads a number above 0 that fits into Placement's column.
func (p *parser) ratio(n *yaml.Node, path string) (float64, bool) {
	const write = "write a number above 0, such as 1.0 or 16"
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || tag != "!!int" && tag != "!!float" {
		hint := write
		if _, err := strconv.ParseFloat(n.Value, 64); err == nil && tag == "!!str" {
			hint = "write it without quotes"
		}
		p.problemf(n, path, hint, "must be a number, not %s", shown(n))
		return 0, false
	}
	var v float64
	if err := n.Decode(&v); err != nil || math.IsNaN(v) || v <= 0 || v > math.MaxFloat32 {
		p.problemf(n, path, write, "%s is out of bounds", shown(n))
		return 0, false
	}
	return v, true
}
