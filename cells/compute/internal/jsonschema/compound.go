// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Property is a member of an object and what its value has to be.
type Property struct {
	Name   string
	Schema Schema
}

// Properties are conditions on the members that an object has, in order.
type Properties []Property

func (p Properties) check(value any) *Error {
	object, is := value.(*jsonkit.Object)
	if !is {
		return nil
	}
	for _, property := range p {
		member, has := object.Get(property.Name)
		if !has {
			continue
		}
		if e := property.Schema.check(member); e != nil {
			return below(property.Name, e)
		}
	}
	return nil
}

func below(step any, e *Error) *Error {
	e.Path = append([]any{step}, e.Path...)
	return e
}

// With are the properties and one more, which takes the place of one of the same name.
func (p Properties) With(name string, s Schema) Properties {
	more := p.Without(name)
	if len(more) < len(p) {
		more = slices.Clone(p)
		more[slices.IndexFunc(p, func(q Property) bool { return q.Name == name })].Schema = s
		return more
	}
	return append(more, Property{Name: name, Schema: s})
}

// Without are the properties without some.
func (p Properties) Without(names ...string) Properties {
	return slices.DeleteFunc(slices.Clone(p), func(q Property) bool { return slices.Contains(names, q.Name) })
}

// Only refuses members that no property is for.
func Only(p Properties) Condition {
	return conditionFunc(func(value any) *Error {
		object, is := value.(*jsonkit.Object)
		if !is {
			return nil
		}
		var others []string
		for _, name := range object.Names() {
			if !slices.ContainsFunc(p, func(q Property) bool { return q.Name == name }) {
				others = append(others, name)
			}
		}
		if len(others) == 0 {
			return nil
		}
		verb := "was"
		if len(others) > 1 {
			verb = "were"
		}
		return wrong(value, "Additional properties are not allowed (%s %s unexpected)", reprSorted(others), verb)
	})
}

func reprSorted(names []string) string {
	slices.Sort(names)
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = Repr(name)
	}
	return strings.Join(shown, ", ")
}

// Closed is an object with some properties and no others, some of them required.
func Closed(p Properties, required ...string) Schema {
	s := Schema{Type("object"), p}
	if len(required) > 0 {
		s = append(s, Required(required...))
	}
	return append(s, Only(p))
}

// Required wants members.
func Required(names ...string) Condition {
	return conditionFunc(func(value any) *Error {
		object, is := value.(*jsonkit.Object)
		if !is {
			return nil
		}
		for _, name := range names {
			if _, has := object.Get(name); !has {
				return wrong(value, "%s is a required property", Repr(name))
			}
		}
		return nil
	})
}

// Members wants the name of each member to match a pattern, and its value a schema.
func Members(pattern string, s Schema) Condition {
	expression := regexp.MustCompile(pattern)
	return conditionFunc(func(value any) *Error {
		object, is := value.(*jsonkit.Object)
		if !is {
			return nil
		}
		var others []string
		for _, name := range object.Names() {
			if !expression.MatchString(name) {
				others = append(others, name)
				continue
			}
			member, _ := object.Get(name)
			if e := s.check(member); e != nil {
				return below(name, e)
			}
		}
		if len(others) == 0 {
			return nil
		}
		verb := "does"
		if len(others) > 1 {
			verb = "do"
		}
		return wrong(value, "%s %s not match any of the regexes: %s", reprSorted(others), verb, Repr(pattern))
	})
}

// MinMembers and MaxMembers bound how many members an object has.
func MinMembers(n int) Condition {
	return conditionFunc(func(value any) *Error {
		if object, is := value.(*jsonkit.Object); is && len(object.Names()) < n {
			return wrong(value, "%s does not have enough properties", Repr(value))
		}
		return nil
	})
}

// MaxMembers see [MinMembers].
func MaxMembers(n int) Condition {
	return conditionFunc(func(value any) *Error {
		if object, is := value.(*jsonkit.Object); is && len(object.Names()) > n {
			return wrong(value, "%s has too many properties", Repr(value))
		}
		return nil
	})
}

// Items wants each item of a list to match a schema.
func Items(s Schema) Condition {
	return conditionFunc(func(value any) *Error {
		list, _ := value.([]any)
		for i, item := range list {
			if e := s.check(item); e != nil {
				return below(i, e)
			}
		}
		return nil
	})
}

// MinItems and MaxItems bound the items of a list.
func MinItems(n int) Condition {
	return conditionFunc(func(value any) *Error {
		if list, is := value.([]any); is && len(list) < n {
			return wrong(value, "%s is too short", Repr(value))
		}
		return nil
	})
}

// MaxItems see [MinItems].
func MaxItems(n int) Condition {
	return conditionFunc(func(value any) *Error {
		if list, is := value.([]any); is && len(list) > n {
			return wrong(value, "%s is too long", Repr(value))
		}
		return nil
	})
}

// UniqueItems wants no item of a list of strings to come twice.
func UniqueItems() Condition {
	return conditionFunc(func(value any) *Error {
		list, _ := value.([]any)
		seen := make(map[string]bool, len(list))
		for _, item := range list {
			shown := Repr(item)
			if seen[shown] {
				return wrong(value, "%s has non-unique elements", Repr(value))
			}
			seen[shown] = true
		}
		return nil
	})
}
