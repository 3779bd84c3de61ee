// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keys are texts of keys, and of what is none.
var keys = []string{
	`[1767225600000000,"5e000000-0000-4000-8000-000000000000"]`, `["a"]`, `[0]`, `[-7,"",12]`, `[9223372036854775807]`, `[9223372036854775808]`, `[]`, `null`, ``,
	`["\u0041"]`, `["ü"]`, `[ 1 , "a" ]`, `[1,]`, `[,1]`, `[1`, `1]`, `["a]`, `["a"b]`, `[01]`, `[-0]`, `[1.5]`, `[1e3]`, `[true]`, `[null]`, `[[1]]`, `{"a":1}`, `["a",]`, `[""]`, `[""x`, `["<"]`,
}

// FuzzKey: a key that is read the quick way is what a decoder would read; and what is written is read again.
func FuzzKey(f *testing.F) {
	for _, text := range keys {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		plain, ok := plainKey([]byte(text))
		if !ok {
			return
		}
		var through []any
		if err := json.Unmarshal([]byte(text), &through); err != nil {
			t.Fatalf("%q is no JSON: %v", text, err)
		}
		again, err := json.Marshal(plain)
		if err != nil {
			t.Fatal(err)
		}
		var same []any
		if err := json.Unmarshal(again, &same); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(through, same); diff != "" {
			t.Errorf("%q (-decoder +quick):\n%s", text, diff)
		}
	})
}

// TestKeysThatAreReadQuickly: those that cells write for lists.
func TestKeysThatAreReadQuickly(t *testing.T) {
	key, ok := plainKey([]byte(keys[0]))
	if diff := cmp.Diff(Key{int64(1767225600000000), "5e000000-0000-4000-8000-000000000000"}, key); !ok || diff != "" {
		t.Error(ok, diff)
	}
}

// BenchmarkKey is the key of a row of the default list.
func BenchmarkKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var key Key
		if err := key.UnmarshalJSON([]byte(keys[0])); err != nil {
			b.Fatal(err)
		}
	}
}
