// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// readAny reads a value of any kind into what encoding/json would make of it.
func (r *reader) readAny() (any, error) {
	switch c := r.peek(); {
	case c == '{':
		m := map[string]any{}
		return m, r.object(func(key []byte) error {
			v, err := r.readAny()
			m[string(key)] = v
			return err
		})
	case c == '[':
		a := []any{}
		return a, r.array(func(int) error {
			v, err := r.readAny()
			a = append(a, v)
			return err
		})
	case c == '"':
		return r.string(0, 0)
	case c == 't' && r.literal("true"):
		return true, nil
	case c == 'f' && r.literal("false"):
		return false, nil
	case r.null():
		return nil, nil
	}
	return r.number(math.MaxFloat64)
}

// FuzzReader holds the reader against encoding/json: both accept the same texts and read the same of them, but that the
// reader refuses deep nesting, half surrogate pairs and bytes that are no UTF-8.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"name":"a","uuid":null}`, ` [ 1 , -0.5e+3, 1E2 ] `, `"\u00e9\ud83d\ude00\n\/"`, `{"a":{"a":[[]]},"a":1}`,
		`01`, `1.`, `-`, `.5`, `nul`, `tru`, `{"a"}`, `{,}`, `[1,]`, `"` + "\x01" + `"`, `"\x"`, `"\ud83d"`, `""x`, ``, `{"a":1,}`, `[`, `"\u12`,
		strings.Repeat("[", 40) + strings.Repeat("]", 40),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r := newReader([]byte(text))
		got, err := r.readAny()
		if err == nil {
			err = r.end()
		}
		var want any
		wantErr := json.Unmarshal([]byte(text), &want)
		switch {
		case err == nil && wantErr != nil:
			t.Errorf("%q is read, and is no JSON: %v", text, wantErr)
		case err == nil && !cmp.Equal(got, want):
			t.Errorf("%q is read as something else (-want +got):\n%s", text, cmp.Diff(want, got))
		case err != nil && wantErr == nil:
			stricter := !utf8.ValidString(text) || strings.Contains(text, `\u`) || strings.Count(text, "[")+strings.Count(text, "{") > maxDepth
			if !stricter {
				t.Errorf("%q is refused: %v", text, err)
			}
		}
		var body *BodyError
		if err != nil && !errors.As(err, &body) {
			t.Errorf("%q gives an error of another kind: %v", text, err)
		}
		if s := newReader([]byte(text)); err == nil {
			if err := s.skip(); err != nil || s.end() != nil {
				t.Errorf("%q can be read and not be skipped: %v", text, err)
			}
		}
	})
}

func TestIntegersAreThoseOfJSONSchema(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "1.0": 1, "1e3": 1000, "-2": -2, "-0": 0, "5.0e1": 50,
		"99999999999999999999": MaxExact, "-1e300": -MaxExact,
	} {
		if n, err := newReader([]byte(text)).integer(math.MinInt64, math.MaxInt64); err != nil || n != want {
			t.Errorf("%s is read as %d, %v; want %d", text, n, err, want)
		}
	}
	for _, text := range []string{"true", "false", "null", `"1"`, "1.5", "1e-1", "[]", "{}", "1e999"} {
		if n, err := newReader([]byte(text)).integer(math.MinInt64, math.MaxInt64); err == nil {
			t.Errorf("%s is read as the integer %d", text, n)
		}
	}
}

func TestBodyErrorsNameThePlaceAndTheRule(t *testing.T) {
	for body, want := range map[string]string{
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":0}}}`:          "JSON does not validate: inventories.VCPU.total must be at least 1",
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":2147483648}}}`: "JSON does not validate: inventories.VCPU.total must be at most 2147483647",
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":1,"x":1}}}`:    "JSON does not validate: inventories.VCPU.x is no key that may stand here",
		`{"resource_provider_generation":true,"inventories":{}}`:                         "JSON does not validate: resource_provider_generation must be an integer",
		`{"inventories":{}}`: `JSON does not validate: the body must have the key "resource_provider_generation"`,
		`[]`:                 "JSON does not validate: the body must be an object",
		`{"inventories":{`:   "Malformed JSON: a key in double quotes is expected (at byte 16)",
		``:                   "Malformed JSON: it ends where a value is expected (at byte 0)",
	} {
		_, err := DecodeInventories([]byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
	_, err := DecodeAggregates([]byte(`["4e8e5957-649f-477b-9e5b-f1f75b21c03c", 7]`), 1)
	if want := "JSON does not validate: [1] must be a string"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
