// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// ErrRule is wrapped by all errors about rules that cannot be used.
var ErrRule = errors.New("invalid policy rule")

// Bounds of one rule.
const (
	maxRule  = 64 << 10 // bytes
	maxDepth = 100      // parentheses and nots within each other
)

// kind is what a node of a rule's tree checks.
type kind uint8

const (
	everybody kind = iota
	never
	hasRole
	isUser
	isProject
	hasScope
	passesRule
	allOf
	anyOf
	noneOf
)

// node is one check, or several that are joined.
type node struct {
	kind kind
	// value is the role (in lower case), the literal to compare with, or the name of the rule.
	value string
	// of says whose attribute is compared with, for isUser and isProject: nothing's ("" is a
	// literal), the project or the user that the request is about.
	of    attribute
	nodes []*node // of allOf, anyOf and noneOf; the rule's own tree for passesRule, once it is resolved
}

// attribute is something of the target of a request.
type attribute uint8

const (
	literal attribute = iota
	targetProject
	targetUser
)

// parse reads one rule. Its time is linear in the length of the text.
func parse(text string) (*node, error) {
	if len(text) > maxRule {
		return nil, fmt.Errorf("%w: it has %d bytes, more than %d", ErrRule, len(text), maxRule)
	}
	if strings.TrimSpace(text) == "" {
		return &node{kind: everybody}, nil
	}
	p := parser{tokens: tokenize(text)}
	n, err := p.or(0)
	if err != nil {
		return nil, err
	}
	if p.next < len(p.tokens) {
		return nil, fmt.Errorf("%w: found %s where \"and\", \"or\" or the end is expected",
			ErrRule, shown(p.tokens[p.next]))
	}
	return n, nil
}

// tokenize splits a rule into words and parentheses. As in oslo.policy, a parenthesis counts at the
// beginning and the end of a word only: those of %(project_id)s belong to it.
func tokenize(text string) []string {
	var tokens []string
	for _, word := range strings.Fields(text) {
		for strings.HasPrefix(word, "(") {
			tokens, word = append(tokens, "("), word[1:]
		}
		bare := strings.TrimRight(word, ")")
		if bare != "" {
			tokens = append(tokens, bare)
		}
		for range len(word) - len(bare) {
			tokens = append(tokens, ")")
		}
	}
	return tokens
}

// parser descends through the tokens of one rule.
type parser struct {
	tokens []string
	next   int
}

// keyword takes the next token if it is the word, in any case.
func (p *parser) keyword(word string) bool {
	if p.next < len(p.tokens) && strings.EqualFold(p.tokens[p.next], word) {
		p.next++
		return true
	}
	return false
}

func (p *parser) or(depth int) (*node, error) { return p.joined("or", anyOf, depth, p.and) }

func (p *parser) and(depth int) (*node, error) { return p.joined("and", allOf, depth, p.not) }

// joined reads one or more parts with the word between them.
func (p *parser) joined(word string, k kind, depth int, part func(depth int) (*node, error)) (*node, error) {
	first, err := part(depth)
	if err != nil {
		return nil, err
	}
	parts := []*node{first}
	for p.keyword(word) {
		more, err := part(depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, more)
	}
	if len(parts) == 1 {
		return first, nil
	}
	return &node{kind: k, nodes: parts}, nil
}

func (p *parser) not(depth int) (*node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%w: parentheses and nots are nested more than %d deep", ErrRule, maxDepth)
	}
	if p.keyword("not") {
		n, err := p.not(depth + 1)
		if err != nil {
			return nil, err
		}
		return &node{kind: noneOf, nodes: []*node{n}}, nil
	}
	if p.keyword("(") {
		n, err := p.or(depth + 1)
		if err != nil {
			return nil, err
		}
		if !p.keyword(")") {
			return nil, fmt.Errorf("%w: a parenthesis is opened and not closed", ErrRule)
		}
		return n, nil
	}
	if p.next == len(p.tokens) {
		return nil, fmt.Errorf("%w: it ends where a check is expected", ErrRule)
	}
	word := p.tokens[p.next]
	p.next++
	return check(word)
}

// check reads one check.
func check(word string) (*node, error) {
	switch strings.ToLower(word) {
	case "@":
		return &node{kind: everybody}, nil
	case "!":
		return &node{kind: never}, nil
	case "and", "or", ")":
		return nil, fmt.Errorf("%w: found %s where a check is expected", ErrRule, shown(word))
	}
	name, value, isCheck := strings.Cut(word, ":")
	if !isCheck || name == "" || value == "" {
		return nil, fmt.Errorf("%w: %s is not a check; a check is @ or ! or KIND:VALUE, such as role:admin",
			ErrRule, shown(word))
	}
	switch name {
	case "rule":
		return &node{kind: passesRule, value: value}, nil
	case "role":
		if strings.Contains(value, "%(") {
			return nil, fmt.Errorf("%w: %s: a role is a plain name here", ErrRule, shown(word))
		}
		return &node{kind: hasRole, value: strings.ToLower(value)}, nil
	case "user_id", "user":
		return compare(isUser, word, value)
	case "project_id", "project", "tenant_id", "tenant":
		return compare(isProject, word, value)
	case "system_scope":
		return compare(hasScope, word, value)
	}
	return nil, fmt.Errorf(
		"%w: %s: checks of the kind %s are not supported; the kinds are role, rule, user_id, project_id and "+
			"system_scope", ErrRule, shown(word), shown(name))
}

// compare reads what an attribute of the caller is compared with.
func compare(k kind, word, value string) (*node, error) {
	switch {
	case value == "%(project_id)s" && k != hasScope:
		return &node{kind: k, of: targetProject}, nil
	case value == "%(user_id)s" && k != hasScope:
		return &node{kind: k, of: targetUser}, nil
	case strings.ContainsAny(value, `%'"`):
		return nil, fmt.Errorf("%w: %s: after the colon comes a plain word, %%(project_id)s or %%(user_id)s",
			ErrRule, shown(word))
	}
	return &node{kind: k, value: value}, nil
}

// shown quotes a part of a rule and bounds its length.
func shown(s string) string { return fmt.Sprintf("%q", textutil.Shorten(s, 80)) }
