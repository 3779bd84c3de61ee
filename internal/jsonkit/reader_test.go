// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// plain is what encoding/json would make of a value.
func plain(value any) any {
	switch v := value.(type) {
	case Number:
		return json.Number(v)
	case []any:
		for i := range v {
			v[i] = plain(v[i])
		}
		return v
	case *Object:
		m := map[string]any{}
		for _, name := range v.Names() {
			member, _ := v.Get(name)
			m[name] = plain(member)
		}
		return m
	}
	return value
}

// FuzzReader holds the reader against encoding/json: both accept the same texts and read the same
// of them, but that the reader refuses deep nesting, half surrogate pairs and bytes that are no
// UTF-8.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","uuid":null}`, ` [ 1 , -0.5e+3, 1E2 ] `, `"\u00e9\ud83d\ude00\n\/"`, `{"a":{"a":[[]]},"a":1}`,
		`01`, `1.`, `-`, `.5`, `nul`, `tru`, `{"a"}`, `{,}`, `[1,]`, `"` + "\x01" + `"`, `"\x"`, `"\ud83d"`, `""x`, ``,
		`{"a":1,}`, `1E700`, `[`, `"\u12`,
		strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode([]byte(text))
		var want any
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		wantErr := decoder.Decode(&want)
		if wantErr == nil && !json.Valid([]byte(text)) {
			wantErr = errors.New("more behind it")
		}
		switch {
		case err == nil && wantErr != nil:
			t.Errorf("%q is read, and is no JSON: %v", text, wantErr)
		case err == nil && !cmp.Equal(plain(got), want):
			t.Errorf("%q is read as something else (-want +got):\n%s", text, cmp.Diff(want, plain(got)))
		case err != nil && wantErr == nil:
			stricter := !utf8.ValidString(text) || strings.Contains(text, `\u`) || strings.Count(text, "[")+
				strings.Count(text, "{") > maxDepth
			if !stricter {
				t.Errorf("%q is refused: %v", text, err)
			}
		}
		var body *Error
		if err != nil && !errors.As(err, &body) {
			t.Errorf("%q gives an error of another kind: %v", text, err)
		}
		if s := NewReader([]byte(text)); err == nil {
			if err := s.Skip(); err != nil || s.End() != nil {
				t.Errorf("%q can be read and not be skipped: %v", text, err)
			}
		}
	})
}

// TestShortened: at most 256 bytes of a text are left, in whole characters.
func TestShortened(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", 256):       strings.Repeat("x", 256),
		strings.Repeat("x", 257):       strings.Repeat("x", 256) + "…",
		"x" + strings.Repeat("é", 128): "x" + strings.Repeat("é", 127) + "…",
	} {
		testproc.Equal(t, Shortened(text), want, "Shortened: %q")
	}
}

func TestIntegersAreThoseOfJSONSchema(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1.0": 1, "1e3": 1000, "-2": -2, "-0": 0, "5.0e1": 50,
		"99999999999999999999": MaxExact, "-1e300": -MaxExact,
	} {
		if n, err := NewReader([]byte(text)).Integer(math.MinInt64, math.MaxInt64); err != nil || n != want {
			t.Errorf("%s is read as %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"true", "false", "null", `"1"`, "1.5", "1e-1", "[]", "{}", "1e999"} {
		if n, err := NewReader([]byte(text)).Integer(math.MinInt64, math.MaxInt64); err == nil {
			t.Errorf("%s is read as the integer %d", text, n)
		}
	}
}

// TestDecodeKeepsOrderAndNumbers: of a name that came twice the last value counts, at the place of
// the first.
func TestDecodeKeepsOrderAndNumbers(t *testing.T) {
	value := testproc.Try(Decode([]byte(`{"b":1.50,"a":{"z":null},"b":[1e2,"x",false]}`))).Or(t)
	o, _ := value.(*Object)
	if o == nil || !slices.Equal(o.Names(), []string{"b", "a"}) {
		t.Fatalf("Decode: got %#v, want an object of b and a", value)
	}
	if got, _ := o.Get("b"); !cmp.Equal(got, []any{Number("1e2"), "x", false}) {
		t.Errorf("the member b: got %#v, want its last value", got)
	}
	for _, text := range []string{`{"a":1} 2`, `{"a":1`,
		"\"\xff\"", `"\ud800"`, strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)} {
		var wrong *Error
		if value, err := Decode([]byte(text)); !errors.As(err, &wrong) || !wrong.Malformed || value != nil {
			t.Errorf("%.20q is read as %v, %v", text, value, err)
		}
	}
}
