// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReference: docs/configuration.md has every key of every section, and of the drivers' own
// tables.
func TestReference(t *testing.T) {
	var keys strings.Builder
	keys.WriteString("| section | read by | about |\n|---|---|---|\n")
	for _, s := range new(Config).sections() {
		about, _, _ := strings.Cut(strings.ReplaceAll(s.Doc, "\n", " "), ". ")
		fmt.Fprintf(&keys, "| [`[%s]`](#%s) | %s | %s |\n",
			s.Name, s.Name, readBy(s.Readers), prose(strings.TrimSuffix(about, ".")))
	}
	fmt.Fprintf(&keys, "| [`[drivers.NAME]`](#driversname) | %s | what the agent does with a driver |\n",
		readBy(driverSection().Readers))
	for _, name := range []string{"libvirt", "fake"} {
		fmt.Fprintf(&keys, "| [`[drivers.%s.config]`](#drivers%sconfig) | the driver | what the driver itself does |\n",
			name, name)
	}
	for _, s := range new(Config).sections() {
		fmt.Fprintf(&keys, "\n## [%s]\n\n%s Read by %s.\n", s.Name, prose(s.Doc), readBy(s.Readers))
		for _, k := range s.keys {
			k.reset()
			describeKey(&keys, dotted(s.Name, k.Name), k)
		}
	}
	fmt.Fprintf(&keys, "\n## [drivers.NAME]\n\n%s Read by %s.\n", prose(driverSection().Doc),
		readBy(driverSection().Readers))
	for _, k := range newDriver().keys() {
		describeKey(&keys, driverPath("NAME", k.Name), k)
	}
	for _, name := range []string{"libvirt", "fake"} {
		describeSchema(t, &keys, name)
	}
	golden.Section(t, "../../docs/configuration.md", "<!-- keys: begin -->", "<!-- keys: end -->", keys.String())
}

func describeKey(out *strings.Builder, path string, k key) {
	when := "a restart"
	if k.Live {
		when = "a reload or a restart"
	}
	fmt.Fprintf(out, "\n### %s\n\n%s\n\n- %s; default `%s`\n- Allowed: %s.\n- A change needs %s. Variable: `%s`\n",
		path, prose(k.Doc), kindOf(k.field), k.format(), prose(k.allowed()), when, EnvName(path))
}

// kindOf is the type of a key's value.
func kindOf(f field) string {
	switch f.(type) {
	case text, secretFile, choice:
		return "String"
	case toggle:
		return "Boolean"
	case number:
		return "Integer"
	case fraction:
		return "Number"
	case duration:
		return "Duration"
	case list:
		return "Array of strings"
	case stringTable:
		return "Table of strings"
	case freeTable:
		return "Table"
	}
	panic(fmt.Sprintf("the reference has no word for a %T", f))
}

// describeSchema describes the keys of a driver's own table, which its JSON schema declares.
func describeSchema(t *testing.T, out *strings.Builder, driver string) {
	content := testproc.Try(os.ReadFile("../../drivers/" + driver + "/schema.json")).Or(t)
	schema := testproc.Try(jsonkit.Decode(content)).Or(t)
	table := fmt.Sprintf("drivers.%s.config", driver)
	fmt.Fprintf(out, "\n## [%s]\n\nRead by the driver, which checks it when it starts; a reload applies changes. It "+
		"has no variables of its own: `%s` is the whole table.\n", table, EnvName(table))
	root := schema.(*jsonkit.Object)
	describeProperties(out, root, root, table+".")
}

// describeProperties describes the properties of an object, and below each one those of the tables
// in it.
func describeProperties(out *strings.Builder, root, object *jsonkit.Object, prefix string) {
	properties := child(object, "properties")
	for _, name := range properties.Names() {
		p := child(properties, name)
		if words := member(p, "description"); words != "" {
			fmt.Fprintf(out, "\n### %s%s\n\n%s\n\n", prefix, name, prose(words))
		} else {
			fmt.Fprintf(out, "\n### %s%s\n\n", prefix, name)
		}
		kind := typeOf(root, p)
		if def, ok := p.Get("default"); ok {
			kind += "; default `" + asTOML(def) + "`"
		}
		fmt.Fprintf(out, "- %s\n", kind)
		if allowed := limitsOf(p); allowed != "" {
			fmt.Fprintf(out, "- Allowed: %s.\n", allowed)
		}
		below, path := p, prefix+name
		if items := child(p, "items"); items != nil {
			below, path = items, path+"[]"
		} else if values := child(p, "additionalProperties"); values != nil {
			below, path = values, path+".NAME"
		}
		if child(below, "properties") != nil {
			describeProperties(out, root, below, path+".")
		}
		// once: it contains itself
		if ref := member(below, "$ref"); ref == "#/$defs/provider" && !strings.Contains(prefix, "[]") {
			provider := child(child(root, "$defs"), "provider")
			describeProperties(out, root, provider, path+".")
			describeProperties(out, root, child(child(root, "$defs"), "inventory"), path+".inventories.CLASS.")
		}
	}
}

// typeOf is the type of a property's value.
func typeOf(root, p *jsonkit.Object) string {
	switch ref := member(p, "$ref"); {
	case ref == "#/$defs/inventory":
		return "Table: an inventory"
	case ref != "":
		return "Table: a resource provider"
	}
	if types, ok := p.Get("type"); ok {
		if several, ok := types.([]any); ok {
			words := make([]string, len(several))
			for i, one := range several {
				words[i] = one.(string)
			}
			return upperFirst(strings.Join(words, " or "))
		}
	}
	switch member(p, "type") {
	case "array":
		of, _, _ := strings.Cut(lowerFirst(typeOf(root, child(p, "items"))), ":")
		return "Array of " + of + "s"
	case "object":
		if values := child(p, "additionalProperties"); values != nil {
			return "Table, by name, of: " + lowerFirst(typeOf(root, values))
		}
		return "Table"
	case "":
		if _, ok := p.Get("enum"); ok {
			return "String"
		}
		return "Any"
	}
	return upperFirst(member(p, "type"))
}

// limitsOf says which values a property can have.
func limitsOf(p *jsonkit.Object) string {
	var all []string
	if values, ok := p.Get("enum"); ok {
		var quoted []string
		for _, v := range values.([]any) {
			quoted = append(quoted, "`"+asTOML(v)+"`")
		}
		all = append(all, series(quoted, "or"))
	}
	for _, limit := range []struct{ name, words string }{
		{"minimum", "at least %s"}, {"exclusiveMinimum", "more than %s"}, {"maximum", "at most %s"},
		{"minLength", "at least %s characters"},
		{"maxLength", "at most %s characters"}, {"format", "a %s"}, {"pattern", "matches `%s`"},
	} {
		if v, ok := p.Get(limit.name); ok && (limit.name != "minLength" || fmt.Sprint(v) != "1") {
			all = append(all, fmt.Sprintf(limit.words, strings.Trim(asTOML(v), `"`)))
		}
	}
	if words := strings.Join(all, ", "); words != `matches `+"`^/`" {
		return words
	}
	return "an absolute path"
}

// child is an object within an object, or nil.
func child(o *jsonkit.Object, name string) *jsonkit.Object {
	if o == nil {
		return nil
	}
	v, _ := o.Get(name)
	inner, _ := v.(*jsonkit.Object)
	return inner
}

// member is a string within an object, or "".
func member(o *jsonkit.Object, name string) string {
	v, _ := o.Get(name)
	s, _ := v.(string)
	return s
}

func asTOML(v any) string {
	if s, ok := v.(string); ok {
		return quote(s)
	}
	return fmt.Sprint(v)
}

func upperFirst(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }

var (
	pageName = regexp.MustCompile(`docs/([a-z-]+\.md)`)
	special  = regexp.MustCompile("`[^`]*`|[*<]")
)

// prose is a description as Markdown: one line, with links to pages.
func prose(words string) string {
	words = special.ReplaceAllStringFunc(strings.ReplaceAll(words, "\n", " "), func(s string) string {
		if len(s) == 1 {
			return `\` + s
		}
		return s
	})
	return pageName.ReplaceAllString(words, "[$1]($1)")
}

// TestEverySectionHasReaders: it is known which services read each section.
func TestEverySectionHasReaders(t *testing.T) {
	want := []string{driversSection}
	for _, s := range new(Config).sections() {
		want = append(want, s.Name)
		if len(s.Readers) == 0 {
			t.Errorf("no service reads [%s]", s.Name)
		}
	}
	slices.Sort(want)
	if got := SectionsOf(allServices...); !slices.Equal(got, want) {
		t.Errorf("services read the sections %q, and there are %q", got, want)
	}
}
