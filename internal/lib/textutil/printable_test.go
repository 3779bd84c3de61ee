// SPDX-License-Identifier: Apache-2.0

package textutil_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestPrintable(t *testing.T) {
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
		testproc.Equal(t, textutil.Printable(in), want, "%q: got %q", in)
	}
	testproc.Equal(t, textutil.PrintableLines("a\n\tb\x1b\n"), "a\n\tb\\u001b\n", "PrintableLines: %q")
}

// FuzzWriter: in whatever pieces text comes, what is written is printable, JSON stays the same
// JSON, and printable text stays as it is.
func FuzzWriter(f *testing.F) {
	f.Add("plain\n", 3)
	f.Add("a\u202eb\U000e0001\x9b", 1)
	f.Fuzz(func(t *testing.T, s string, size int) {
		size = max(size%10, 1)
		write := func(b []byte) string {
			var out bytes.Buffer
			w := textutil.NewWriter(&out)
			for len(b) > 0 {
				n := min(size, len(b))
				testproc.Try(w.Write(b[:n])).Or(t)
				b = b[n:]
			}
			testproc.Check(t, w.Flush())
			return out.String()
		}
		got := write([]byte(s))
		testproc.Equal(t, got, textutil.PrintableLines(s), "%q in pieces of %d: %q", s, size)
		for _, r := range got {
			if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
				t.Errorf("%q: %q is not printable", s, r)
			}
		}
		if !utf8.ValidString(s) {
			return
		}
		text := testproc.Try(json.Marshal(s)).Or(t)
		var back string
		if err := json.Unmarshal([]byte(write(text)), &back); err != nil || back != s {
			t.Errorf("%q as JSON: %q, %v", s, back, err)
		}
	})
}

func TestSanitize(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {"plain – ünï", "plain – ünï"}, {"a\nb", "a; b"}, {"a\r\n\n\nb\n", "a; b"},
		{"\ta\tb\u00a0c", "a b c"}, {"\x1b[1m", `\u001b[1m`},
		{"a\xffb", "a\uFFFDb"}, {"\u202e\u200b\ufeff", `\u202e\u200b\ufeff`},
		{strings.Repeat("x", 21), strings.Repeat("x", 20) + "..."},
		{strings.Repeat("ä", 11), strings.Repeat("ä", 10) + "..."},
		{strings.Repeat("\x00", 100), strings.Repeat(`\u0000`, 3) + `\u...`},
	} {
		testproc.Equal(t, textutil.Sanitize(c.in, 20), c.want, "%q: got %q", c.in)
	}
}

// TestTruncate: what is left is within the bound, and in whole characters.
func TestTruncate(t *testing.T) {
	for _, c := range []struct {
		in   string
		size int
		want string
		more bool
	}{
		{"", 0, "", false}, {"ab", 2, "ab", false}, {"abc", 2, "ab", true}, {"abc", 0, "", true},
		{"äö", 4, "äö", false}, {"äö", 3, "ä", true}, {"äö", 2, "ä", true}, {"äö", 1, "", true},
		{"a𝄞b", 4, "a", true}, {"a𝄞b", 5, "a𝄞", true},
	} {
		clipped, shortened := c.want, c.want
		if c.more {
			clipped, shortened = c.want+"...", c.want+"…"
		}
		testproc.Equal(t, textutil.Truncate(c.in, c.size), c.want, "Truncate(%q, %d): %q", c.in, c.size)
		testproc.Equal(t, textutil.Clip(c.in, c.size), clipped, "Clip(%q, %d): %q", c.in, c.size)
		testproc.Equal(t, textutil.Shorten(c.in, c.size), shortened, "Shorten(%q, %d): %q", c.in, c.size)
	}
}

// TestLine: whatever comes, it becomes one short line, and a mark says that something is left out.
func TestLine(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		content := []byte(strings.Repeat(rapid.String().Draw(t, "text"), rapid.IntRange(0, 300).Draw(t, "times")) +
			string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")))
		got := textutil.Line(content, 300)
		whole := strings.Join(strings.Fields(strings.ToValidUTF8(string(content), "?")), " ")
		begin, cut := strings.CutSuffix(got, "...")
		switch {
		case !utf8.ValidString(got), strings.ContainsAny(got, "\n\r\t"), utf8.RuneCountInString(got) > 303:
			t.Errorf("Line: got %q, want at most 303 characters in one line", got)
		case got == whole:
		case !cut:
			t.Errorf("%q became %q", whole, got)
		case !strings.HasPrefix(whole, strings.TrimRight(begin, "?")):
			t.Errorf("%q does not begin with %q", whole, begin)
		}
	})
}
