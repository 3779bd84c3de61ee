// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// Bounds of a file.
const (
	maxRules = 1000
	maxName  = 255 // bytes of the name of a rule
)

// ReadFile reads the rules of a policy file, by name: one mapping of names to rules, in YAML or
// JSON. A file without any is one, too. Its errors wrap ErrRule and name the line.
func ReadFile(data []byte) (map[string]string, error) {
	var doc, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	err := decoder.Decode(&doc)
	if err == nil {
		if err = decoder.Decode(&more); err == nil {
			return nil, fmt.Errorf(
				"%w: line %d: a second YAML document begins; all rules have to be in one, without --- between them",
				ErrRule, more.Line)
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: this is not YAML: %s", ErrRule, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	rules := map[string]string{}
	if len(doc.Content) == 0 || doc.Content[0].Tag == "!!null" {
		return rules, nil
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: line %d: a policy file is a mapping, with a line NAME: RULE for each rule",
			ErrRule, top.Line)
	}
	if len(top.Content) > 2*maxRules {
		return nil, fmt.Errorf("%w: there are %d rules, more than %d", ErrRule, len(top.Content)/2, maxRules)
	}
	for i := 0; i+1 < len(top.Content); i += 2 {
		name, rule := top.Content[i], top.Content[i+1]
		switch {
		case name.Kind != yaml.ScalarNode || name.Value == "" || len(name.Value) > maxName:
			return nil, fmt.Errorf("%w: line %d: the name of a rule is a string of 1 to %d bytes",
				ErrRule, name.Line, maxName)
		case rule.Kind == yaml.SequenceNode:
			return nil, fmt.Errorf("%w: line %d: %s is a list; write it as one string with \"and\" and \"or\"",
				ErrRule, rule.Line, shown(name.Value))
		case rule.Tag == "!!null":
			return nil, fmt.Errorf(
				`%w: line %d: %s has no value; write "!" to refuse every caller, or "@" to allow every caller`, ErrRule,
				name.Line, shown(name.Value))
		case rule.Kind != yaml.ScalarNode || rule.Tag != "!!str":
			return nil, fmt.Errorf("%w: line %d: %s is not a string; put quotes around it",
				ErrRule, rule.Line, shown(name.Value))
		}
		if _, twice := rules[name.Value]; twice {
			return nil, fmt.Errorf("%w: line %d: %s is a duplicate", ErrRule, name.Line, shown(name.Value))
		}
		rules[name.Value] = rule.Value
	}
	return rules, nil
}

// didYouMean is "; did you mean X?" with the candidate that is most like the word, or "" when none
// is like it.
func didYouMean(word string, candidates []string) string {
	others := slices.DeleteFunc(slices.Clone(candidates), func(c string) bool { return c == word })
	if near := textutil.Suggest(word, others, max(2, len(word)/4)); near != "" {
		return fmt.Sprintf("; did you mean %q?", near)
	}
	return ""
}
