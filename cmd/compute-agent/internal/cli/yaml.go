// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// yamlWriter turns the JSON that is written to it into YAML: the same document, with the same keys
// in the same order. Several JSON values become several documents.
type yamlWriter struct {
	w    io.Writer
	rest []byte // the beginning of a value
	many bool   // a document has been written
}

// newYAML returns a yamlWriter that writes to w. Close it.
func newYAML(w io.Writer) *yamlWriter { return &yamlWriter{w: w} }

// Write implements [io.Writer].
func (y *yamlWriter) Write(p []byte) (int, error) {
	y.rest = append(y.rest, p...)
	if !bytes.HasSuffix(p, []byte("\n")) || !bytes.HasSuffix(bytes.TrimSpace(p), []byte("}")) &&
		!bytes.HasSuffix(bytes.TrimSpace(p), []byte("]")) {
		return len(p), nil // most likely not at the end of a value: do not read what there is for each part again
	}
	if err := y.convert(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close writes what is left. What is not JSON is written as it is.
func (y *yamlWriter) Close() error {
	err := y.convert()
	if err == nil && len(bytes.TrimSpace(y.rest)) > 0 {
		_, err = y.w.Write(y.rest)
	}
	y.rest = nil
	return err
}

// convert writes the complete values.
func (y *yamlWriter) convert() error {
	for {
		d := json.NewDecoder(bytes.NewReader(y.rest))
		d.UseNumber()
		node, err := yamlNode(d)
		if err != nil {
			return nil //nolint:nilerr // not complete, or not JSON
		}
		y.rest = y.rest[d.InputOffset():]
		var b bytes.Buffer
		if y.many {
			b.WriteString("---\n")
		}
		y.many = true
		enc := yaml.NewEncoder(&b)
		enc.SetIndent(2)
		if err := errors.Join(enc.Encode(node), enc.Close()); err != nil {
			return fmt.Errorf("cannot write YAML: %w", err)
		}
		if _, err := y.w.Write(b.Bytes()); err != nil {
			return err
		}
	}
}

// yamlNode reads one JSON value.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return yamlString(v), nil
	case json.Number:
		return yamlNumber(v.String()), nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: fmt.Sprint(v)}, nil
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
	node := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if token == json.Delim('{') {
		node = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	}
	for d.More() { // an object yields its keys and values in turn, as the contents of a mapping
		below, err := yamlNode(d)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, below)
	}
	_, err = d.Token() // the end
	return node, err
}

// yamlNumber keeps the digits. YAML 1.1 reads a number with an exponent only with a point and a
// sign.
func yamlNumber(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: text} // without a tag: plain, also beyond 64 bits
	digits, exponent, scientific := strings.Cut(strings.ToLower(text), "e")
	if scientific {
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		if !strings.HasPrefix(exponent, "-") && !strings.HasPrefix(exponent, "+") {
			exponent = "+" + exponent
		}
		node.Value = digits + "e" + exponent
	}
	return node
}

// notString matches what YAML 1.1 does not read as a string, beside what YAML 1.2 does not.
var notString = regexp.MustCompile(
	`^([yYnN]|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|=|<<|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)$`)

// yamlString quotes a string where it is not plain for every reader of YAML.
func yamlString(text string) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	switch {
	case strings.Contains(text, "\n") && textutil.IsPrintable(strings.ReplaceAll(text, "\n", "")):
		node.Style = yaml.LiteralStyle
	case !textutil.IsPrintable(text), notString.MatchString(text): // escapes are for double quotes
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}
