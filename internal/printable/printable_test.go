// SPDX-License-Identifier: Apache-2.0

package printable_test

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/printable"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"cn1_gpu_0 → ü 计算 é": "cn1_gpu_0 → ü 计算 é",
		"a\x1b[2Jb":          `a\u001b[2Jb`,
		"a\rb\nc\td":         `a\rb\nc\td`,
		"x\u202ey\u2066z":    `x\u202ey\u2066z`,
		"c1 \u0085\u009b":    `c1 \u0085\u009b`,
		"bad \xff\xc3":       `bad \xff\xc3`,
		"tag \U000e0001":     `tag \udb40\udc01`,
		"zero\u200bwidth":    `zero\u200bwidth`,
		"":                   "",
	} {
		if got := printable.Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
	if got := printable.Text("a\n\tb\x1b\n"); got != "a\n\tb\\u001b\n" {
		t.Errorf("Text: %q", got)
	}
}

// FuzzWriter: in whatever pieces text comes, what is written is printable, JSON stays the same JSON, and printable text stays as it is.
func FuzzWriter(f *testing.F) {
	f.Add("plain\n", 3)
	f.Add("a\u202eb\U000e0001\x9b", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = max(size%10, 1)
		write := func(b []byte) string {
			var out bytes.Buffer
			w := printable.NewWriter(&out)
			for len(b) > 0 {
				n := min(size, len(b))
				if _, err := w.Write(b[:n]); err != nil {
					t.Fatal(err)
				}
				b = b[n:]
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		got := write([]byte(s))
		if got != printable.Text(s) {
			t.Errorf("%q in pieces of %d: %q", s, size, got)
		}
		for _, r := range got {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				t.Errorf("%q: %q is not printable", s, r)
			}
		}
		if !utf8.ValidString(s) {
			return
		}
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(write(text)), &back); err != nil || back != s {
			t.Errorf("%q as JSON: %q, %v", s, back, err)
		}
	})
}
