// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func toYAML(t testing.TB, source string) string {
	t.Helper()
	var b bytes.Buffer
	out := textutil.NewWriter(&b) // as commands have it
	y := newYAML(out)
	testproc.Try(io.WriteString(y, source)).Or(t)
	testproc.Check(t, errors.Join(y.Close(), out.Flush()))
	return b.String()
}

func TestYAMLKeepsKeysInOrderAndTypes(t *testing.T) {
	got := toYAML(t, `{
  "zebra": {"b": 1, "a": [], "empty": {}},
  "amounts": [9223372036854775807, 18446744073709551616123, 1e+21, 1E6, 0.5, -0, 2.50],
  "text": ["yes", "No", "on", "n", "null", "~", "1e3", "017", "0x1f", "12:30:45", "2026-11-28", "1.0", "true", "=", "<<", "", " ", "- a", "a: b", "# c", "plain text"],
  "lines": "one\ntwo\n",
  "flags": [true, false, null],
  "yes": "key"
}
`)
	want := `zebra:
  b: 1
  a: []
  empty: {}
amounts:
  - 9223372036854775807
  - 18446744073709551616123
  - 1.0e+21
  - 1.0e+6
  - 0.5
  - -0
  - 2.50
text:
  - "yes"
  - "No"
  - "on"
  - "n"
  - "null"
  - "~"
  - "1e3"
  - "017"
  - "0x1f"
  - "12:30:45"
  - "2026-11-28"
  - "1.0"
  - "true"
  - "="
  - "<<"
  - ""
  - ' '
  - '- a'
  - 'a: b'
  - '# c'
  - plain text
lines: |
  one
  two
flags:
  - true
  - false
  - null
"yes": key
`
	testproc.Same(t, cmp.Diff(want, got))
}

func TestYAMLHasADocumentForEachValue(t *testing.T) {
	source := "{\"a\":1}\n{\"a\":2}\n[]\n{\n  \"a\": {\n    \"b\": []\n  }\n}\n"
	const want = "a: 1\n---\na: 2\n---\n[]\n---\na:\n  b: []\n"
	testproc.Equal(t, toYAML(t, source), want, "got %q")
	var b bytes.Buffer
	y := newYAML(&b)
	testproc.Try(io.Copy(struct{ io.Writer }{y}, iotest.OneByteReader(strings.NewReader(source)))).Or(t)
	if err := y.Close(); err != nil || b.String() != want {
		t.Errorf("byte by byte: %q, %v", b.String(), err)
	}
}

// TestYAMLIsWrittenWhenAValueIsComplete: `logs --follow` does not wait for the next line.
func TestYAMLIsWrittenWhenAValueIsComplete(t *testing.T) {
	var b bytes.Buffer
	y := newYAML(&b)
	testproc.Try(io.WriteString(y, "{\"a\":1}\n{\"b\"")).Or(t)
	testproc.Try(io.WriteString(y, ":2}\n")).Or(t)
	if want := "a: 1\n---\nb: 2\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestYAMLLosesNothingThatIsNotJSON(t *testing.T) {
	testproc.Equal(t, toYAML(t, "{\"a\":1}\nno JSON\n"), "a: 1\n\nno JSON\n", "got %q")
}

// FuzzYAML: the document is the same as that of the JSON, after the sanitization of output.
func FuzzYAML(f *testing.F) {
	for _, s := range []string{
		"", "a", "a\nb", "a\n", "\n", " a\nb", "a \nb", "\ta", "\x1b[31mred", "\u202eevil", "\u2028", "\u0085",
		"\u00a0", "\ufeff", "😀", "\U000e0001", "\"", "\\u001b", "a: b", "|", "? x",
		"a\r\nb", "\n\na", "%", "@x", "`", "---", "...", "--- a\nb", "1_000", "0b1", "0o7", "1:2", ".inf", "a #b",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			t.Skip("JSON has no such strings")
		}
		source := testproc.Try(json.Marshal(map[string]any{"key": s, s: []any{s, 1}})).Or(t)
		text := toYAML(t, string(source)+"\n")
		var want, got map[string]any
		testproc.Check(t, json.Unmarshal(source, &want))
		if err := yaml.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		for _, v := range got {
			if list, is := v.([]any); is {
				list[1] = float64(1)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s\nin\n%s", diff, text)
		}
		if !textutil.IsPrintable(strings.ReplaceAll(text, "\n", "")) {
			t.Errorf("not printable: %q", text)
		}
	})
}
