// SPDX-License-Identifier: Apache-2.0

package oslopolicy

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestRules(t *testing.T) {
	me := osapi.Principal{User: "me", Project: "ours", Roles: []string{"member", "reader"}}
	system := osapi.Principal{User: "root", Roles: []string{"admin"}, SystemScope: true}
	nowhere := osapi.Principal{User: "lost"}
	own := Target{Project: "ours", User: "me"}
	for _, c := range []struct {
		rule   string
		caller osapi.Principal
		target Target
		want   bool
	}{
		{"", me, own, true},
		{"  ", me, own, true},
		{"@", me, own, true},
		{"!", me, own, false},
		{"role:member", me, own, true},
		{"role:MEMBER", me, own, true},
		{"role:admin", me, own, false},
		{"not role:admin", me, own, true},
		{"not not role:admin", me, own, false},
		{"NOT role:admin AND role:member", me, own, true},
		{"not (role:admin or role:member)", me, own, false},
		{"role:admin or role:member", me, own, true},
		{"role:admin and role:member", me, own, false},
		// and binds closer than or, on either side.
		{"role:member or role:admin and role:admin", me, own, true},
		{"role:admin and role:admin or role:member", me, own, true},
		{"(role:member or role:admin) and role:admin", me, own, false},
		{"((role:member))", me, own, true},
		{"project_id:%(project_id)s", me, own, true},
		{"tenant:%(project_id)s", me, own, true},
		{"(project_id:%(project_id)s)", me, own, true},
		{"project_id:%(project_id)s", me, Target{Project: "theirs"}, false},
		{"project_id:%(project_id)s", me, Target{}, false},
		{"project_id:%(project_id)s", nowhere, Target{}, false}, // nothing is not equal to nothing
		{"project_id:ours", me, Target{}, true},
		{"user_id:%(user_id)s", me, own, true},
		{"user_id:me", me, own, true},
		{"user_id:%(user_id)s", me, Target{Project: "ours"}, false},
		{"user_id:%(project_id)s", osapi.Principal{User: "x"}, Target{Project: "x"}, true},
		{"system_scope:all", system, Target{}, true},
		{"system_scope:all", me, own, false},
		{"system_scope:some", system, Target{}, false},
	} {
		r, err := Compile(map[string]string{"it": c.rule})
		if err != nil {
			t.Errorf("Compile(%q): %v", c.rule, err)
			continue
		}
		testproc.Equal(t, r.Pass("it", &c.caller, c.target), c.want, "%q for %+v, %+v: %t", c.rule, c.caller, c.target)
		if r.Pass("else", &c.caller, c.target) || r.Has("else") {
			t.Error("a rule that does not exist lets a caller pass")
		}
	}
}

func TestRulesThatReferToOthers(t *testing.T) {
	r := testproc.Try(Compile(map[string]string{
		"a": "rule:b or rule:c", "b": "role:x and not rule:c", "c": "role:y",
	})).Or(t)
	for roles, want := range map[string]bool{"x": true, "y": true, "x y": true, "z": false} {
		if got := r.Pass("a", &osapi.Principal{Roles: strings.Fields(roles)}, Target{}); got != want {
			t.Errorf("roles %q: %t", roles, got)
		}
	}
	testproc.Same(t, cmp.Diff([]string{"b", "c"}, References("rule:c or not (rule:b and rule:c)")))
}

func TestRulesThatCannotBeUsed(t *testing.T) {
	chain := map[string]string{"r0": "@"}
	for i := range 20 {
		chain["r"+string(rune('a'+i))] = "rule:r" + string(rune('a'+i-1)) + " or rule:r" + string(rune('a'+i-1))
	}
	chain["ra"] = "rule:r0 or rule:r0"
	for _, c := range []struct {
		rules map[string]string
		says  string
	}{
		{map[string]string{"a": "role:"}, "is not a check"},
		{map[string]string{"a": ":admin"}, "is not a check"},
		{map[string]string{"a": "admin"}, "is not a check"},
		{map[string]string{"a": "role:admin role:member"},
			`found "role:member" where "and", "or" or the end is expected`},
		{map[string]string{"a": "role:admin or"}, "ends where a check is expected"},
		{map[string]string{"a": "or role:admin"}, `found "or" where a check is expected`},
		{map[string]string{"a": "(role:admin"}, "not closed"},
		{map[string]string{"a": "role:admin)"}, "where"},
		{map[string]string{"a": "()"}, "where a check is expected"},
		{map[string]string{"a": "http://example.com/%(target)s"}, `kind "http" are not supported`},
		{map[string]string{"a": "domain_id:default"}, "not supported"},
		{map[string]string{"a": "role:%(role)s"}, "plain name"},
		{map[string]string{"a": "project_id:%(target.project.id)s"}, "plain word"},
		{map[string]string{"a": "system_scope:%(project_id)s"}, "plain word"},
		{map[string]string{"a": "'member':%(role)s"}, "not supported"},
		{map[string]string{"a": strings.Repeat("(", 200) + "@" + strings.Repeat(")", 200)}, "nested"},
		{map[string]string{"a": strings.Repeat("not ", 200) + "@"}, "nested"},
		{map[string]string{"a": strings.Repeat("x", 1<<20)}, "bytes"},
		{map[string]string{"a": "rule:admin_ap", "admin_api": "@"},
			`rule "a": invalid policy rule: it refers to the rule "admin_ap", which does not exist; did you mean ` +
				`"admin_api"?`},
		{map[string]string{"a": "rule:zzzzzz"}, "which does not exist"},
		{map[string]string{"a": "rule:a"}, "refers to itself, through a → a"},
		{map[string]string{"a": "rule:b", "b": "not rule:c", "c": "@ or rule:a"},
			"refers to itself, through a → b → c → a"},
		{chain, "more than 10000 checks"},
	} {
		_, err := Compile(c.rules)
		if !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%.200v: %v, want %q", c.rules, err, c.says)
		}
		if err != nil && len(err.Error()) > 1000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

func TestPolicyFiles(t *testing.T) {
	for _, c := range []struct {
		file string
		want map[string]string
		says string
	}{
		{"", map[string]string{}, ""},
		{"# all as it comes\n", map[string]string{}, ""},
		{"---\n", map[string]string{}, ""},
		{`"a:b": "role:x"` + "\nc: role:y or\n  role:z\nd: ''\n",
			map[string]string{"a:b": "role:x", "c": "role:y or role:z", "d": ""}, ""},
		{`{"a": "@", "b": "!"}`, map[string]string{"a": "@", "b": "!"}, ""},
		{"a: [[role:x]]\n", nil, `line 1: "a" is a list`},
		{"a:\n", nil, `line 1: "a" has no value`},
		{"b: '@'\na: 1\n", nil, `line 2: "a" is not a string`},
		{"a: {b: c}\n", nil, `line 1: "a" is not a string`},
		{"[a]: b\n", nil, "line 1: the name of a rule is a string of 1 to 255 bytes"},
		{"- a\n", nil, "line 1: a policy file is a mapping"},
		{"a: &x role:x\nb: *x\n", nil, `line 2: "b" is not a string`},
		{"a: '@'\na: '!'\n", nil, "duplicate"},
		{"a: '@\n", nil, "not YAML"},
		// oslo.policy refuses it as well; to leave b out would open it
		{"a: '@'\n---\nb: '!'\n", nil, "line 2: a second YAML document"},
		{"a: '@'\n---\nb: '!\n", nil, "not YAML"},
		{"---\na: '@'\n...\n", map[string]string{"a": "@"}, ""},
		{strings.Repeat("a: b\n", 1001), nil, "1001 rules"},
	} {
		got, err := ReadFile([]byte(c.file))
		if c.says != "" {
			if !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%.80q: %v, want %q", c.file, err, c.says)
			}
			continue
		}
		if diff := cmp.Diff(c.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", c.file, err, diff)
		}
	}
}

// FuzzPolicy: no file makes the reader panic or the decision run away, and a rule that can be read
// means the same when its spaces are others.
func FuzzPolicy(f *testing.F) {
	for _, seed := range []string{
		"a: role:x and (not rule:b or project_id:%(project_id)s)\nb: '@'\n", "a: rule:a\n", "a: '((()'", "{a: [b]}",
		"a: &a [*a]", "a: 'not not !'", "\xff: \x00",
		"a: 'role:x or role:y and role:z'",
		`"placement:usages": "rule:admin_api or user_id:%(user_id)s"` + "\nadmin_api: role:admin",
	} {
		f.Add([]byte(seed))
	}
	callers := []osapi.Principal{{}, {User: "u", Project: "p", Roles: []string{"x", "admin"}},
		{SystemScope: true, Roles: []string{"y"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		texts, err := ReadFile(data)
		if err != nil {
			return
		}
		rules, err := Compile(texts)
		if err != nil {
			return
		}
		spaced := maps.Clone(texts)
		for name, text := range spaced {
			spaced[name] = strings.Join(tokenize(text), "\t ")
		}
		again, err := Compile(spaced)
		testproc.Checkf(t, err, "%q could be read, %q could not", texts, spaced)
		for _, name := range slices.Sorted(maps.Keys(texts)) {
			for _, c := range callers {
				target := Target{Project: "p", User: "u"}
				if rules.Pass(name, &c, target) != again.Pass(name, &c, target) {
					t.Errorf("%q and %q differ", texts[name], spaced[name])
				}
			}
		}
	})
}

func BenchmarkPass(b *testing.B) {
	r := testproc.Try(Compile(map[string]string{
		"reader": "role:reader and project_id:%(project_id)s", "most": "role:admin or role:service",
		"usages": "rule:most or rule:reader",
	})).Or(b)
	c := osapi.Principal{User: "u", Project: "p", Roles: []string{"member", "reader"}}
	b.ReportAllocs()
	for b.Loop() {
		if !r.Pass("usages", &c, Target{Project: "p"}) {
			b.Fatal("a reader does not pass")
		}
	}
}
