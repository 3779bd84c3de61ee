// SPDX-License-Identifier: Apache-2.0

package cellwire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// keys are keys in JSON, valid and invalid.
var keys = []string{
	`[1767225600000000,"5e000000-0000-4000-8000-000000000000"]`, `["a"]`, `[0]`, `[-7,"",12]`, `[9223372036854775807]`,
	`[9223372036854775808]`, `[]`, `null`, ``,
	`["\u0041"]`, `["ü"]`, `[ 1 , "a" ]`, `[1,]`, `[,1]`, `[1`, `1]`, `["a]`, `["a"b]`, `[01]`, `[-0]`, `[1.5]`,
	`[1e3]`, `[true]`, `[null]`, `[[1]]`, `{"a":1}`, `["a",]`, `[""]`, `[""x`, `["<"]`,
}

// FuzzKey compares decoded keys with what encoding/json decodes.
func FuzzKey(f *testing.F) {
	for _, text := range keys {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var key Key
		if key.UnmarshalJSON([]byte(text)) != nil {
			return
		}
		decoder := json.NewDecoder(strings.NewReader(text))
		decoder.UseNumber()
		var want []any
		testproc.Checkf(t, decoder.Decode(&want), "%q is not JSON", text)
		for i, v := range want {
			if n, is := v.(json.Number); is {
				want[i], _ = n.Int64()
			}
		}
		testproc.Samef(t, cmp.Diff(want, []any(key), cmpopts.EquateEmpty()), "%q (-encoding/json +key)", text)
	})
}

// TestKeyUnmarshalJSON decodes the key of a row, and rejects values that are not strings or int64.
func TestKeyUnmarshalJSON(t *testing.T) {
	var key Key
	err := json.Unmarshal([]byte(keys[0]), &key)
	if diff := cmp.Diff(Key{int64(1767225600000000), "5e000000-0000-4000-8000-000000000000"}, key); err != nil ||
		diff != "" {
		t.Error(err, diff)
	}
	for _, text := range []string{`[9223372036854775808]`,
		`[1.5]`, `[1e3]`, `[true]`, `[null]`, `[[1]]`, `{"a":1}`, `1`} {
		if err := json.Unmarshal([]byte(text), &key); err == nil {
			t.Errorf("%s is a key: %v", text, key)
		}
	}
}

// BenchmarkKey is the key of a row of the default list.
func BenchmarkKey(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		var key Key
		if err := key.UnmarshalJSON([]byte(keys[0])); err != nil { // Check would cost a third as much
			b.Fatal(err)
		}
	}
}
