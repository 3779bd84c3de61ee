// SPDX-License-Identifier: Apache-2.0

package jsonkit_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func decode(t interface{ Fatalf(string, ...any) }, text []byte) (s string) {
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestStringsAreWhatEncodingJSONReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()),
			func(b []byte) string { return string(b) })).Draw(t, "s")
		std := testproc.Try(json.Marshal(s)).Or(t)
		if got, want := decode(t, jsonkit.AppendString(nil, s)), decode(t, std); got != want {
			t.Fatalf("%q reads back as %q, want %q", s, got, want)
		}
	})
}

// TestStringsAreEscapedAtEveryPlace puts every byte at every place of a string that is looked at
// eight bytes at a time.
func TestStringsAreEscapedAtEveryPlace(t *testing.T) {
	for c := range 256 {
		for at := range 20 {
			raw := []byte("abcdefgh~!#[]0123456")
			raw[at] = byte(c)
			want := strings.ToValidUTF8(string(raw), "\ufffd")
			testproc.Equal(t, decode(t, jsonkit.AppendString(nil, string(raw))), want, "%q becomes %q", raw)
		}
	}
}
