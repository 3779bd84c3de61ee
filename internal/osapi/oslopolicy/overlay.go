// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
)

// Overlay is the policy of an API, for policy files that override its rules.
type Overlay struct {
	// API is what errors call it.
	API string
	// Rules are the API's own, by name.
	Rules map[string]string
	// Words may stand for a whole rule in a file; none of them is a rule of oslo.policy's language.
	Words map[string]string
	// Reserved reports whether a name is for an API's own rules only.
	Reserved func(name string) bool
	// Lenient leaves out rules with a reserved name that the API does not have, and those that only
	// they refer to. Otherwise they are errors.
	Lenient bool
}

// Compile returns the rules of the API, overridden by those of a file, and the names of those with
// a reserved name that were left out. A file may also have rules that others of it refer to; any
// other name is an error, because it would have no effect.
func (o Overlay) Compile(file []byte) (rules *Rules, without []string, err error) {
	own, err := ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	for name, text := range own {
		if word, is := o.Words[strings.TrimSpace(text)]; is {
			own[name] = word
		}
	}
	reached, referred := map[string]bool{}, map[string]bool{}
	for name, text := range own {
		if _, known := o.Rules[name]; known {
			reach(own, name, reached)
		}
		for _, other := range References(text) {
			referred[other] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own)) {
		_, known := o.Rules[name]
		reserved := o.Reserved(name)
		switch {
		case known, o.Lenient && reached[name]:
		case o.Lenient && reserved:
			without = append(without, name)
			delete(own, name)
		case reserved, !referred[name]:
			return nil, nil, fmt.Errorf("%w: %s has no rule %q, and no rule of the file refers to it%s",
				ErrRule, o.API, name, didYouMean(name, slices.Sorted(maps.Keys(o.Rules))))
		case o.Lenient: // It may refer to what was left out.
			delete(own, name)
		}
	}
	texts := maps.Clone(o.Rules)
	maps.Copy(texts, own)
	if rules, err = Compile(texts); err != nil {
		return nil, nil, err
	}
	return rules, without, nil
}

// reach marks a rule of a file, and those of the file that it refers to.
func reach(own map[string]string, name string, marked map[string]bool) {
	text, is := own[name]
	if !is || marked[name] {
		return
	}
	marked[name] = true
	for _, other := range References(text) {
		reach(own, other, marked)
	}
}

// Open reads a policy file, and again when it changes; see [files.NewReloaded]. Errors of parse
// name the file.
func Open[T any](path string, log zerolog.Logger, parse func(file []byte) (T, error)) (*files.Reloaded[T], error) {
	return files.NewReloaded([]string{path}, log, nil, func(files []files.Content) (T, error) {
		policy, err := parse(files[0].Data)
		if err != nil {
			err = fmt.Errorf("policy file %s: %w", path, err)
		}
		return policy, err
	})
}
