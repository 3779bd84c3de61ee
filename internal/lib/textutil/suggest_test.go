// SPDX-License-Identifier: Apache-2.0

package textutil_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestSuggest(t *testing.T) {
	known := []string{"listen", "auth", "token_file", "cert_file", "key_file", ""}
	for _, c := range []struct {
		word string
		most int
		want string
	}{
		{"lisen", 1, "listen"}, {"lsitn", 2, ""}, {"lsitn", 3, "listen"},
		{"tokenfile", 1, "token_file"}, {"token-file", 1, "token_file"},
		{"ket_file", 3, "key_file"}, // and not cert_file, which is further away
		{"auth", 0, "auth"}, {"Auth", 1, "auth"},
		{strings.Repeat("x", 256), 300, ""}, // too long to be looked at
		{strings.Repeat("x", 255), 255, "listen"},
		{"lisen", 0, ""}, {"", 3, ""},
	} {
		testproc.Equal(t, textutil.Suggest(c.word, known, c.most), c.want, "Suggest(%.20q, %d) is %q", c.word, c.most)
	}
	testproc.Equal(t, textutil.Suggest("ab", []string{"ax", "ay"}, 1), "ax", "of two that are as near, %q")
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"ab", "ba", 2}, {"Auth", "auth", 1},
	} {
		testproc.Equal(t, textutil.Distance(c.a, c.b), c.want, "%q, %q: %d", c.a, c.b)
	}
}

// TestDistanceIsOne: it is a distance, in the mathematicians' sense.
func TestDistanceIsOne(t *testing.T) {
	word := rapid.StringMatching(`[a-c]{0,8}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := word.Draw(t, "a"), word.Draw(t, "b"), word.Draw(t, "c")
		ab := textutil.Distance(a, b)
		switch {
		case ab != textutil.Distance(b, a):
			t.Error("it is another in the other direction")
		case (ab == 0) != (a == b):
			t.Errorf("it is %d", ab)
		case ab > textutil.Distance(a, c)+textutil.Distance(c, b):
			t.Error("a way round is shorter")
		case ab > max(len(a), len(b)) || ab < max(len(a), len(b))-min(len(a), len(b)):
			t.Errorf("%d is impossible", ab)
		}
	})
}
