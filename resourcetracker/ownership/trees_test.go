// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// uid is the uuid of the provider that the tests call by a key: the same key, the same uuid.
func uid(key string) string {
	id, err := providertree.ChildUUID("6b1b1fb4-3d0b-4a2c-9f0e-0d6a4f4f9c11", key)
	if err != nil {
		panic(err)
	}
	return id
}

var root = uid("cn1")

// tree makes a tree of lines, each a provider, children indented below their parents by two blanks:
//
//	NAME[#KEY] [CLASS=TOTAL[,reserved=N][,ratio=F]]... [@AGGREGATE]... [TRAIT]... [!]
//
// The uuid follows from KEY, or the name. "!" is a provider that Placement does not have yet.
func tree(t testing.TB, lines string) *providertree.Tree {
	t.Helper()
	var all []providertree.Provider
	var above []string
	for _, line := range strings.Split(lines, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		depth := (len(line) - len(strings.TrimLeft(line, " "))) / 2
		name, key, _ := strings.Cut(words[0], "#")
		if key == "" {
			key = name
		}
		p := providertree.Provider{UUID: uid(key), Name: name, Generation: 1, Inventories: providertree.Inventories{}}
		above = above[:depth]
		if depth > 0 {
			p.ParentUUID = above[depth-1]
		}
		above = append(above, p.UUID)
		for _, w := range words[1:] {
			class, amount, isInventory := strings.Cut(w, "=")
			switch {
			case w == "!":
				p.Generation = providertree.NoGeneration
			case isInventory:
				p.Inventories[class] = parseInventory(t, amount)
			case w[0] == '@':
				p.Aggregates = append(p.Aggregates, uid(w[1:]))
			default:
				p.Traits = append(p.Traits, w)
			}
		}
		all = append(all, p)
	}
	out := &providertree.Tree{}
	testproc.Checkf(t, out.Populate(all), "the test's tree")
	return out
}

func parseInventory(t testing.TB, s string) providertree.Inventory {
	t.Helper()
	fields := strings.Split(s, ",")
	i := providertree.Inventory{Total: number(t, fields[0])}
	for _, f := range fields[1:] {
		switch name, value, _ := strings.Cut(f, "="); name {
		case "reserved":
			i.Reserved = number(t, value)
		case "ratio":
			ratio := testproc.Try(strconv.ParseFloat(value, 64)).Or(t)
			i.AllocationRatio = ratio
		default:
			t.Fatalf("no such field: %s", f)
		}
	}
	return i
}

func number(t testing.TB, s string) int64 {
	t.Helper()
	return testproc.Try(strconv.ParseInt(s, 10, 64)).Or(t)
}

// lines is the reverse of tree, without uuids and generations, siblings by name.
func lines(t *providertree.Tree) string {
	var b strings.Builder
	var show func(uuids []string, depth int)
	show = func(uuids []string, depth int) {
		slices.SortFunc(uuids, func(a, b string) int { return strings.Compare(nameOf(t, a), nameOf(t, b)) })
		for _, uuid := range uuids {
			p, _ := t.Provider(uuid)
			fmt.Fprint(&b, strings.Repeat("  ", depth), p.Name)
			for _, class := range sortedKeys(p.Inventories) {
				i := p.Inventories[class]
				fmt.Fprintf(&b, " %s=%d", class, i.Total)
				if i.Reserved != 0 {
					fmt.Fprintf(&b, ",reserved=%d", i.Reserved)
				}
				if i.AllocationRatio != 1 {
					fmt.Fprintf(&b, ",ratio=%v", i.AllocationRatio)
				}
			}
			for _, a := range p.Aggregates {
				fmt.Fprint(&b, " @", a)
			}
			for _, trait := range p.Traits {
				fmt.Fprint(&b, " ", trait)
			}
			fmt.Fprintln(&b)
			show(t.Children(uuid), depth+1)
		}
	}
	show(t.Roots(), 0)
	return b.String()
}

func nameOf(t *providertree.Tree, uuid string) string {
	p, _ := t.Provider(uuid)
	return p.Name
}

func sameTree(t testing.TB, want, got *providertree.Tree) {
	t.Helper()
	if !got.Equal(want) {
		t.Errorf("tree (- want, + got):\n%s", cmp.Diff(lines(want), lines(got)))
	}
}

// owned makes the record of a tree from lines "NAME [owner] [ITEM:owner]...": the values are those
// of the tree.
func owned(t testing.TB, known *providertree.Tree, text string) *Record {
	t.Helper()
	r := &Record{Root: root, Node: "cn1", Driver: "fake", Providers: map[string]Provider{}}
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		p, found := known.ProviderByName(words[0])
		if !found {
			t.Fatalf("the test's tree has no %s", words[0])
		}
		o := ours{inventories: map[string]Owner{}, traits: map[string]Owner{}, aggregates: map[string]Owner{}}
		for _, w := range words[1:] {
			item, owner, isItem := strings.Cut(w, ":")
			switch {
			case !isItem:
				o.owner = Owner(w)
			case item[0] == '@':
				o.aggregates[uid(item[1:])] = Owner(owner)
			default:
				if _, isClass := p.Inventories[item]; isClass {
					o.inventories[item] = Owner(owner)
				} else {
					o.traits[item] = Owner(owner)
				}
			}
		}
		r.setProvider(p, o)
	}
	return r
}

// owners is the reverse of owned.
func owners(r *Record) string {
	var out []string
	for _, p := range r.Providers {
		words := []string{p.Name}
		if p.Owner != "" {
			words = append(words, string(p.Owner))
		}
		for _, class := range sortedKeys(p.Inventories) {
			words = append(words, class+":"+string(p.Inventories[class].Owner))
		}
		for _, a := range sortedKeys(p.Aggregates) {
			words = append(words, "@"+a+":"+string(p.Aggregates[a]))
		}
		for _, trait := range sortedKeys(p.Traits) {
			words = append(words, trait+":"+string(p.Traits[trait]))
		}
		out = append(out, strings.Join(words, " "))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// trim brings the lines of a test into the form of owners.
func trim(s string) string {
	var out []string
	for _, line := range strings.Split(s, "\n") {
		if line = strings.TrimSpace(line); line != "" {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// leaving are the traits that a merge takes off providers that stay, by provider.
func leaving(in Input, out Result) map[string][]string {
	leave := map[string][]string{}
	for p := range in.Known.All() {
		for _, trait := range p.Traits {
			if out.Tree.Exists(p.UUID) && !out.Tree.HasTraits(p.UUID, trait) {
				leave[p.UUID] = append(leave[p.UUID], trait)
			}
		}
	}
	return leave
}

// afterACrash checks that a pass that is no reshape finishes what one has begun: of what it was to
// write, only that traits leave some providers was not done any more.
func afterACrash(t rapid.TB, in Input, out Result, undone map[string][]string) {
	t.Helper()
	known := out.Tree.Clone()
	for uuid, traits := range undone {
		testproc.Try(known.AddTraits(uuid, traits...)).Or(t)
	}
	again := in
	again.Known, again.Base, again.Record, again.Created = known, nil, out.Former.Union(out.Record), false
	again.Answer, again.Reshape = Strip(in.Answer, again.Record), false
	last, err := Merge(again)
	testproc.Checkf(t, err, "the merge after a crash")
	if !last.Tree.Equal(out.Tree) {
		t.Errorf("after a crash something else comes of it:\n%s", cmp.Diff(lines(out.Tree), lines(last.Tree)))
	}
	if got, want := owners(last.Record), owners(out.Record); got != want {
		t.Errorf("after a crash another owner has it:\n%s", cmp.Diff(want, got))
	}
}

// atRest checks that a merge of the result changes nothing more, when the driver hands on what it
// is given and says the same.
func atRest(t rapid.TB, in Input, out Result) {
	t.Helper()
	again := in
	again.Known, again.Base, again.Record, again.Created = out.Tree, nil, out.Record, false
	again.Answer, again.Reshape = Strip(in.Answer, out.Record), false
	second, err := Merge(again)
	testproc.Checkf(t, err, "the second merge")
	if !second.Tree.Equal(out.Tree) {
		t.Errorf("the second merge changes the tree:\n%s", cmp.Diff(lines(out.Tree), lines(second.Tree)))
	}
	if !second.Record.Equal(out.Record) {
		t.Errorf("the second merge changes the record:\n%s", cmp.Diff(owners(out.Record), owners(second.Record)))
	}
}
