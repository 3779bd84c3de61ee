// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRepr: values are shown as Python shows them.
func TestRepr(t *testing.T) {
	for text, want := range map[string]string{
		`null`: "None", `true`: "True", `false`: "False", `12`: "12", `-0`: "-0", `1.0`: "1.0", `1.50`: "1.5",
		`1e3`: "1000.0", `1e400`: "inf", `-1e400`: "-inf",
		`1e16`: "1e+16", `1e-5`: "1e-05", `0.0001`: "0.0001",
		`123456789012345678901234567890`: "123456789012345678901234567890",
		`"a"`:                            "'a'", `"it's"`: `"it's"`, `"it's \"so\""`: `'it\'s "so"'`,
		`"a\\b\n\r\t"`: `'a\\b\n\r\t'`, `"\u0000\u007f\u0080\u00e9\u200b\ue000"`: `'\x00\x7f\x80é\u200b\ue000'`,
		`"\ud83d\ude00"`: "'😀'", `"\udb40\udc01"`: `'\U000e0001'`, `"\u2028"`: `'\u2028'`,
		`"\u00a0"`: `'\xa0'`, `"\u3000"`: `'\u3000'`,
		`[]`: "[]", `{}`: "{}", `[1,"a",null]`: "[1, 'a', None]",
		`{"b":1,"a":[true,{"c":"d"}]}`: "{'b': 1, 'a': [True, {'c': 'd'}]}",
		`{"a":1,"b":2,"a":3}`:          "{'a': 3, 'b': 2}",
	} {
		v, err := Decode([]byte(text))
		testproc.NoErrorf(t, err, "%s", text)
		testproc.Equal(t, PythonRepr(v), want, "%s: %s", text)
	}
}

// TestDecodeRefuses what is not one value.
func TestDecodeRefuses(t *testing.T) {
	for _, text := range []string{"", " ", "{", "}", "{} {}", "[1,]", `{"a"}`, `{"a":}`, "nul", "\"\xff\"",
		"NaN", strings.Repeat("[", 102) + strings.Repeat("]", 102), `{"a":1,}`, "01"} {
		if v, err := Decode([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, v)
		}
	}
}

// TestConditions: each condition's refusal, in jsonschema's words.
func TestConditions(t *testing.T) {
	positive := Schema{Type("integer", "string"), Pattern("^[0-9]*$"), Minimum(1), MinLength(1), Maximum(20)}
	named := Properties{{"name", Schema{Type("string"), MinLength(1), MaxLength(3), Name()}}, {"n", positive}}
	list := func(c ...Condition) Schema { return append(Schema{Type("array")}, c...) }
	for _, tt := range []struct {
		schema     Schema
		text, want string
	}{
		{positive, `1`, ""}, {positive, `"20"`, ""},
		{positive, `true`, "True is not of type 'integer', 'string'"},
		{positive, `1.0`, "1.0 is not of type 'integer', 'string'"},
		{positive, `0`, "0 is less than the minimum of 1"},
		{positive, `"007"`, ""}, {positive, `"00"`, "0 is less than the minimum of 1"},
		{positive, `"21"`, "21 is greater than the maximum of 20"}, {positive, `""`, "'' is too short"},
		{positive, `"x"`, "'x' does not match '^[0-9]*$'"},
		{Schema{Type("number", "string"), ExclusiveMinimum(0)}, `0.0`, "0.0 is less than or equal to the minimum of 0"},
		{Schema{ExclusiveMinimum(0)}, `"0.50"`, ""},
		{Schema{Maximum(3.4e38)}, `"1e39"`, "1e+39 is greater than the maximum of 3.4e+38"},
		{Schema{Enum(true, "yes")}, `true`, ""}, {Schema{Enum(true, "yes")}, `1`, "1 is not one of [True, 'yes']"},
		{Schema{Enum("a")}, `{}`, "{} is not one of ['a']"},
		{ClosedObject(named), `{"name":""}`, "Invalid input for field/attribute name. Value: . '' is too short"},
		{ClosedObject(named), `{"name":"aaaa"}`,
			"Invalid input for field/attribute name. Value: aaaa. 'aaaa' is too long"},
		{ClosedObject(named), `{"name":" a"}`,
			"An invalid 'name' value was provided. The name must be: printable characters. Can not start or end " +
				"with whitespace."},
		{ClosedObject(named), `{"name":"日本語"}`, ""},
		{ClosedObject(named), `{"name":"😀"}`,
			"An invalid 'name' value was provided. The name must be: printable characters. Can not start or end " +
				"with whitespace."},
		{ClosedObject(named), `{"x":1,"b":2}`, "Additional properties are not allowed ('b', 'x' were unexpected)"},
		{ClosedObject(named, "n", "name"), `{"x":1}`, "'n' is a required property"},
		{ClosedObject(named), `[]`, "[] is not of type 'object'"},
		{ClosedObject(named), `null`, "None is not of type 'object'"},
		{Schema{Type("object"), PatternProperties("^[a-z]+$", Schema{Type("string")})}, `{"A":"x","b":1}`,
			"Invalid input for field/attribute b. Value: 1. 1 is not of type 'string'"},
		{Schema{Type("object"), PatternProperties("^[a-z]+$", Schema{Type("string")})}, `{"B":"x","A":1}`,
			"'A', 'B' do not match any of the regexes: '^[a-z]+$'"},
		{Schema{MinProperties(1), MaxProperties(1)}, `{}`, "{} does not have enough properties"},
		{Schema{MinProperties(1), MaxProperties(1)}, `{"a":1,"b":2}`, "{'a': 1, 'b': 2} has too many properties"},
		{list(Items(positive)), `[1,"x"]`,
			"Invalid input for field/attribute 1. Value: x. 'x' does not match '^[0-9]*$'"},
		{list(MinItems(1)), `[]`, "[] is too short"}, {list(MaxItems(1)), `[1,2]`, "[1, 2] is too long"},
		{list(UniqueItems()), `["a","b","a"]`, "['a', 'b', 'a'] has non-unique elements"},
		{Schema{AnyOf(Schema{Type("null")}, Schema{Format("uuid")})}, `"x"`,
			"'x' is not valid under any of the given schemas"},
		{Schema{Format("ipv4")}, `"1.2.3"`, "'1.2.3' is not a 'ipv4'"},
		{Schema{Format("ipv6")}, `"fe80::1%eth0"`, "'fe80::1%eth0' is not a 'ipv6'"},
		{Schema{Format("ipv6")}, `"::ffff:1.2.3.4"`, ""}, {Schema{Format("ipv4")}, `"::1"`, "'::1' is not a 'ipv4'"},
	} {
		v, err := Decode([]byte(tt.text))
		testproc.Checkf(t, err, "%s", tt.text)
		got := ""
		if err := Validate(tt.schema, v); err != nil {
			got = err.Error()
		}
		testproc.Equal(t, got, tt.want, "%s: %q", tt.text)
	}
}

// TestFormats as Nova has them.
func TestFormats(t *testing.T) {
	for s, want := range map[string]bool{
		"": true, "aGVsbG8=": true, "aGVsbG8": false, "aGVs\nbG8=": true, "!!": true, "====": true, "a": false,
		"aa==": true, "aa=": false, "aaa=": true, "aaaa=": true, "b": false, "=aaaa": true, "aGVsbG8é=": false,
	} {
		testproc.Equal(t, base64Like(s), want, "base64Like(%q) is %t", s)
	}
}

// TestValidateQuery names the parameter, and looks at each of its values.
func TestValidateQuery(t *testing.T) {
	known := Properties{{"limit", Schema{Type("string"), Pattern("^[0-9]*$")}}}
	testproc.NoError(t, ValidateQuery(known, url.Values{"limit": {"1"}, "other": {"x"}}))
	err := ValidateQuery(known, url.Values{"limit": {"1", "-1"}})
	if want := "Invalid input for query parameters limit. Value: -1. '-1' does not match '^[0-9]*$'"; err == nil ||
		err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
}

// TestValidateClosedQuery: each parameter is known, and comes once.
func TestValidateClosedQuery(t *testing.T) {
	known := Properties{{"limit", Schema{Type("string"), Pattern("^[0-9]*$")}}, {"marker", Schema{Type("string")}}}
	for query, want := range map[string]string{
		"": "", "limit=1&marker=x": "",
		"limit=1&limit=2":     "Invalid input for query parameters limit. Value: ['1', '2']. ['1', '2'] is too long",
		"limit=1&limit=x":     "Invalid input for query parameters limit. Value: x. 'x' does not match '^[0-9]*$'",
		"other=1&limit=x":     "Invalid input for query parameters limit. Value: x. 'x' does not match '^[0-9]*$'",
		"other=1&limit=2&a=3": "Additional properties are not allowed ('a', 'other' were unexpected)",
	} {
		params := testproc.Try(url.ParseQuery(query)).Or(t)
		got := ""
		if err := ValidateClosedQuery(known, params); err != nil {
			got = err.Error()
		}
		testproc.Equal(t, got, want, "%s: %s", query)
	}
}

// TestWith: properties are added, replaced and left out in a copy, in their places.
func TestWith(t *testing.T) {
	p := Properties{{"a", nil}, {"b", nil}}
	names := func(p Properties) string {
		var all []string
		for _, property := range p {
			all = append(all, property.Name)
		}
		return strings.Join(all, " ")
	}
	replaced := p.With("a", Schema{Type("null")})
	for got, want := range map[string]string{
		names(p.With("c", nil)): "a b c", names(replaced): "a b", names(p.Without("a")): "b", names(p): "a b",
	} {
		testproc.Equal(t, got, want, "%s")
	}
	if p[0].Schema != nil || len(replaced[0].Schema) != 1 {
		t.Error("the original was changed")
	}
}

// TestDecodeIsJSON: what is decoded means what encoding/json makes of it.
func TestDecodeIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := testproc.Try(json.Marshal(anyValue(t, 3))).Or(t)
		got, err := Decode(text)
		testproc.Checkf(t, err, "%s", text)
		var want any
		testproc.Check(t, json.Unmarshal(text, &want))
		if diff := cmp.Diff(want, withEncodingJSONTypes(got)); diff != "" {
			t.Fatalf("%s:\n%s", text, diff)
		}
	})
}

func anyValue(t *rapid.T, depth int) any {
	kinds := 4
	if depth > 0 {
		kinds = 6
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.Float64Range(-1e20, 1e20).Draw(t, "number")
	case 3:
		return rapid.String().Draw(t, "string")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "length"))
		for i := range list {
			list[i] = anyValue(t, depth-1)
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		object[rapid.String().Draw(t, "name")] = anyValue(t, depth-1)
	}
	return object
}

// withEncodingJSONTypes is a value in the types of encoding/json.
func withEncodingJSONTypes(v any) any {
	switch v := v.(type) {
	case Number:
		return v.Float64()
	case []any:
		for i := range v {
			v[i] = withEncodingJSONTypes(v[i])
		}
	case *Object:
		object := map[string]any{}
		for _, name := range v.Names() {
			member, _ := v.Get(name)
			object[name] = withEncodingJSONTypes(member)
		}
		return object
	}
	return v
}

// FuzzDecode: anything is decoded or refused.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "null", `{"a":[1,2.5e3,{"b":null}]}`, "[[[[", `"\ud800"`, "\xff", `{"a":1}x`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Decode(data)
		if err == nil && !json.Valid(data) {
			t.Errorf("%q is not JSON", data)
		}
		_ = PythonRepr(v)
	})
}
