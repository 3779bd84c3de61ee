// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"regexp"
	"slices"
	"strings"
)

// Property is a member of an object and what its value has to be.
type Property struct {
	Name   string
	Schema Schema
}

// Properties are conditions on the members that an object has, in order.
type Properties []Property

func (p Properties) check(value any) *SchemaError {
	object, is := value.(*Object)
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

func below(step any, e *SchemaError) *SchemaError {
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

// NoAdditionalProperties refuses members that no property is for.
func NoAdditionalProperties(p Properties) Condition {
	return condition{"additionalProperties", false, func(value any) *SchemaError {
		object, is := value.(*Object)
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
		return schemaError(value, "Additional properties are not allowed (%s %s unexpected)", reprSorted(others), verb)
	}}
}

func reprSorted(names []string) string {
	slices.Sort(names)
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = PythonRepr(name)
	}
	return strings.Join(shown, ", ")
}

// ClosedObject is an object with some properties and no others, some of them required.
func ClosedObject(p Properties, required ...string) Schema {
	s := Schema{Type("object"), p}
	if len(required) > 0 {
		s = append(s, Required(required...))
	}
	return append(s, NoAdditionalProperties(p))
}

// Required wants members.
func Required(names ...string) Condition {
	return condition{"required", names, func(value any) *SchemaError {
		object, is := value.(*Object)
		if !is {
			return nil
		}
		for _, name := range names {
			if _, has := object.Get(name); !has {
				return schemaError(value, "%s is a required property", PythonRepr(name))
			}
		}
		return nil
	}}
}

// PatternProperties wants the name of each member to match a pattern, and its value a schema.
func PatternProperties(pattern string, s Schema) Condition {
	expression := regexp.MustCompile(pattern)
	return patternProperties{pattern, s, func(value any) *SchemaError {
		object, is := value.(*Object)
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
		return schemaError(value, "%s %s not match any of the regexes: %s", reprSorted(others), verb,
			PythonRepr(pattern))
	}}
}

// MinProperties and MaxProperties bound how many members an object has.
func MinProperties(n int) Condition {
	return condition{"minProperties", n, func(value any) *SchemaError {
		if object, is := value.(*Object); is && len(object.Names()) < n {
			return schemaError(value, "%s does not have enough properties", PythonRepr(value))
		}
		return nil
	}}
}

// MaxProperties see [MinProperties].
func MaxProperties(n int) Condition {
	return condition{"maxProperties", n, func(value any) *SchemaError {
		if object, is := value.(*Object); is && len(object.Names()) > n {
			return schemaError(value, "%s has too many properties", PythonRepr(value))
		}
		return nil
	}}
}

// Items wants each item of a list to match a schema.
func Items(s Schema) Condition {
	return condition{"items", s, func(value any) *SchemaError {
		list, _ := value.([]any)
		for i, item := range list {
			if e := s.check(item); e != nil {
				return below(i, e)
			}
		}
		return nil
	}}
}

// MinItems and MaxItems bound the items of a list.
func MinItems(n int) Condition {
	return condition{"minItems", n, func(value any) *SchemaError {
		if list, is := value.([]any); is && len(list) < n {
			return schemaError(value, "%s is too short", PythonRepr(value))
		}
		return nil
	}}
}

// MaxItems see [MinItems].
func MaxItems(n int) Condition {
	return condition{"maxItems", n, func(value any) *SchemaError {
		if list, is := value.([]any); is && len(list) > n {
			return schemaError(value, "%s is too long", PythonRepr(value))
		}
		return nil
	}}
}

// UniqueItems wants no item of a list of strings to come twice.
func UniqueItems() Condition {
	return condition{"uniqueItems", true, func(value any) *SchemaError {
		list, _ := value.([]any)
		seen := make(map[string]bool, len(list))
		for _, item := range list {
			shown := PythonRepr(item)
			if seen[shown] {
				return schemaError(value, "%s has non-unique elements", PythonRepr(value))
			}
			seen[shown] = true
		}
		return nil
	}}
}
