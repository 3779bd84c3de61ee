// SPDX-License-Identifier: Apache-2.0

package jsonkit

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// MaxExact is where the integers that are read end: larger ones are read as MaxExact (smaller than
// -MaxExact as that). Python computes with integers of any size, and every limit that there is on
// them is far below; a number cut off here fails the same check that the whole one would, and sums
// of some of them cannot overflow an int64.
const MaxExact = 1 << 53

// Error is what is wrong with a JSON text.
type Error struct {
	// Path is where: "inventories.VCPU.total", or "" for the whole body.
	Path string
	// Offset is how many bytes were read.
	Offset int
	// Malformed is set when the body is no JSON at all, and not when it breaks a rule of the API.
	Malformed bool
	// Problem is the rule that is broken, as the end of a sentence: "must be at least 1".
	Problem string
}

// Error is the whole sentence.
func (e *Error) Error() string {
	if e.Malformed {
		return fmt.Sprintf("Malformed JSON: %s (at byte %d)", e.Problem, e.Offset)
	}
	where := "the body"
	if e.Path != "" {
		where = e.Path
	}
	return fmt.Sprintf("JSON does not validate: %s %s", where, e.Problem)
}

// Shortened is the first 256 bytes of s, in whole characters, and "…" if there are more: it keeps
// what a client sent from filling error bodies and logs.
func Shortened(s string) string { return textutil.Shorten(s, 256) }

// maxDepth bounds how deep arrays and objects may be nested. Ten levels is what the APIs have.
const maxDepth = 32

// Reader reads a JSON text from front to back, once, into what the caller expects there; it makes
// no tree of it. The rules are those of Python's json and jsonschema, which clients of Placement
// are used to: 1.0 is an integer and true is not, of two equal keys the last one counts, and NaN,
// comments and bytes that are no UTF-8 are refused.
//
// A reader allocates nothing but the strings with escapes in them and what the caller makes of the
// values.
type Reader struct {
	data  []byte
	pos   int
	depth int
	path  []step
	steps [8]step // the first of path
}

// step is one step of the way from the top of the body to the value that is being read.
type step struct {
	key   []byte // nil: index counts
	index int
}

// NewReader makes a reader of a text, which must not change as long as what was read of it is used.
func NewReader(text []byte) *Reader {
	r := &Reader{data: text}
	r.path = r.steps[:0]
	return r
}

func (r *Reader) malformed(format string, args ...any) error {
	return &Error{Offset: r.pos, Malformed: true, Problem: fmt.Sprintf(format, args...)}
}

// Invalid is the error that the value here breaks a rule.
func (r *Reader) Invalid(format string, args ...any) error {
	var path strings.Builder
	for i, s := range r.path {
		switch {
		case s.key == nil:
			fmt.Fprintf(&path, "[%d]", s.index)
		case i > 0:
			path.WriteByte('.')
			fallthrough
		default:
			path.WriteString(textutil.Shorten(string(s.key), 100))
		}
	}
	return &Error{Path: path.String(), Offset: r.pos, Problem: fmt.Sprintf(format, args...)}
}

// Missing is the error that the object here has not all keys that it must have.
func (r *Reader) Missing(key string) error { return r.Invalid("must have the key %q", key) }

// Unknown is the error that the object here has a key that it must not have. The key is the last
// step of the path.
func (r *Reader) Unknown() error { return r.Invalid("is not an allowed key") }

// peek skips white space and gives the next byte; 0 at the end.
func (r *Reader) peek() byte {
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; c {
		case ' ', '\t', '\n', '\r':
			r.pos++
		default:
			return c
		}
	}
	return 0
}

// End makes sure that nothing but white space is left.
func (r *Reader) End() error {
	if r.peek() != 0 || r.pos < len(r.data) {
		return r.malformed("there is data after the end of the value")
	}
	return nil
}

func (r *Reader) enter() error {
	r.pos++
	if r.depth++; r.depth > maxDepth {
		return r.malformed("it is nested deeper than %d levels", maxDepth)
	}
	return nil
}

// Object reads an object and calls member for each of its keys; member must read the value.
func (r *Reader) Object(member func(key []byte) error) error {
	if r.peek() != '{' {
		return r.wrongType("an object")
	}
	if err := r.enter(); err != nil {
		return err
	}
	r.path = append(r.path, step{})
	for first := true; ; first = false {
		c := r.peek()
		if c == '}' && first {
			break
		}
		if c != '"' {
			return r.malformed("a key in double quotes is expected")
		}
		key, err := r.text()
		if err != nil {
			return err
		}
		if r.peek() != ':' {
			return r.malformed("a colon is expected after a key")
		}
		r.pos++
		r.path[len(r.path)-1] = step{key: key}
		if err := member(key); err != nil {
			return err
		}
		if c = r.peek(); c == '}' {
			break
		}
		if c != ',' {
			return r.malformed("a comma or the end of the object is expected")
		}
		r.pos++
	}
	r.path = r.path[:len(r.path)-1]
	r.pos++
	r.depth--
	return nil
}

// Array reads an array and calls element for each of its values; element must read the value.
func (r *Reader) Array(element func(i int) error) error {
	if r.peek() != '[' {
		return r.wrongType("an array")
	}
	if err := r.enter(); err != nil {
		return err
	}
	r.path = append(r.path, step{})
	for i := 0; ; i++ {
		if r.peek() == ']' && i == 0 {
			break
		}
		r.path[len(r.path)-1] = step{index: i}
		if err := element(i); err != nil {
			return err
		}
		c := r.peek()
		if c == ']' {
			break
		}
		if c != ',' {
			return r.malformed("a comma or the end of the array is expected")
		}
		r.pos++
	}
	r.path = r.path[:len(r.path)-1]
	r.pos++
	r.depth--
	return nil
}

// String reads a string of min to max characters (max 0: no limit but that of the body).
func (r *Reader) String(minimum, maximum int) (string, error) {
	if r.peek() != '"' {
		return "", r.wrongType("a string")
	}
	text, err := r.text()
	if err != nil {
		return "", err
	}
	n := utf8.RuneCount(text)
	if n < minimum {
		return "", r.Invalid("must not be empty")
	}
	if maximum > 0 && n > maximum {
		return "", r.Invalid("has %d characters; at most %d are allowed", n, maximum)
	}
	return string(text), nil
}

// Null reads a null, if one is next.
func (r *Reader) Null() bool {
	if r.peek() == 'n' && r.literal("null") {
		return true
	}
	return false
}

func (r *Reader) literal(word string) bool {
	if len(r.data)-r.pos < len(word) || string(r.data[r.pos:r.pos+len(word)]) != word {
		return false
	}
	r.pos += len(word)
	return true
}

// Integer reads an integer between the two limits; 1.0 and 1e3 are integers.
func (r *Reader) Integer(minimum, maximum int64) (int64, error) {
	token, whole, err := r.numeral("an integer")
	if err != nil {
		return 0, err
	}
	var n int64
	if whole {
		n, _ = strconv.ParseInt(string(token), 10, 64) // beyond an int64, the largest or smallest
		n = max(-MaxExact, min(MaxExact, n))
	} else {
		f, err := strconv.ParseFloat(string(token), 64)
		if err != nil || f != math.Trunc(f) {
			return 0, r.Invalid("must be an integer")
		}
		n = int64(max(-MaxExact, min(MaxExact, f)))
	}
	if n < minimum {
		return 0, r.Invalid("must be at least %d", minimum)
	}
	if n > maximum {
		return 0, r.Invalid("must be at most %d", maximum)
	}
	return n, nil
}

// Number reads a number that is not larger than maximum.
func (r *Reader) Number(maximum float64) (float64, error) {
	token, _, err := r.numeral("a number")
	if err != nil {
		return 0, err
	}
	f, err := strconv.ParseFloat(string(token), 64)
	if err != nil || f > maximum {
		return 0, r.Invalid("must be a number of at most %g that a double can hold", maximum)
	}
	return f, nil
}

// numeral reads the text of a number. whole says that it has neither a fraction nor an exponent.
func (r *Reader) numeral(kind string) (token []byte, whole bool, err error) {
	c := r.peek()
	if c != '-' && (c < '0' || c > '9') {
		return nil, false, r.wrongType(kind)
	}
	start := r.pos
	if c == '-' {
		r.pos++
	}
	switch digits := r.digits(); {
	case digits == 0:
		return nil, false, r.malformed("a digit is expected")
	case digits > 1 && r.data[r.pos-digits] == '0':
		return nil, false, r.malformed("a number must not begin with 0")
	}
	whole = true
	if r.pos < len(r.data) && r.data[r.pos] == '.' {
		r.pos++
		whole = false
		if r.digits() == 0 {
			return nil, false, r.malformed("a digit is expected")
		}
	}
	if r.pos < len(r.data) && (r.data[r.pos] == 'e' || r.data[r.pos] == 'E') {
		r.pos++
		whole = false
		if r.pos < len(r.data) && (r.data[r.pos] == '+' || r.data[r.pos] == '-') {
			r.pos++
		}
		if r.digits() == 0 {
			return nil, false, r.malformed("a digit is expected")
		}
	}
	return r.data[start:r.pos], whole, nil
}

func (r *Reader) digits() (n int) {
	for r.pos < len(r.data) && r.data[r.pos] >= '0' && r.data[r.pos] <= '9' {
		r.pos++
		n++
	}
	return n
}

// Skip reads a value of any kind and forgets it.
func (r *Reader) Skip() error {
	switch c := r.peek(); {
	case c == '{':
		return r.Object(func([]byte) error { return r.Skip() })
	case c == '[':
		return r.Array(func(int) error { return r.Skip() })
	case c == '"':
		_, err := r.text()
		return err
	case c == 't' && r.literal("true"), c == 'f' && r.literal("false"), c == 'n' && r.literal("null"):
		return nil
	}
	_, _, err := r.numeral("")
	return err
}

// wrongType is the error that the value here is of another kind than wanted, or is no value at all.
func (r *Reader) wrongType(wanted string) error {
	switch c := r.peek(); {
	case c == 0:
		return r.malformed("it ends where a value is expected")
	case wanted != "" && (strings.IndexByte(`{["-0123456789`, c) >= 0 || r.literal("true") ||
		r.literal("false") || r.literal("null")):
		return r.Invalid("must be %s", wanted)
	default:
		return r.malformed("a value is expected")
	}
}

// text reads a string. The result is a part of the body where it has no escapes.
func (r *Reader) text() ([]byte, error) {
	r.pos++
	start := r.pos
	for r.pos < len(r.data) {
		switch c := r.data[r.pos]; {
		case c == '"':
			text := r.data[start:r.pos]
			if !utf8.Valid(text) {
				return nil, r.malformed("a string is not in UTF-8")
			}
			r.pos++
			return text, nil
		case c == '\\':
			return r.escapedText(start)
		case c < ' ':
			return nil, r.malformed("a control character must be escaped")
		default:
			r.pos++
		}
	}
	return nil, r.malformed("a string does not end")
}

// escapedText goes on with a string at its first escape.
func (r *Reader) escapedText(start int) ([]byte, error) {
	text := append(make([]byte, 0, r.pos-start+32), r.data[start:r.pos]...)
	for r.pos < len(r.data) {
		c := r.data[r.pos]
		switch {
		case c == '"':
			if !utf8.Valid(text) {
				return nil, r.malformed("a string is not in UTF-8")
			}
			r.pos++
			return text, nil
		case c < ' ':
			return nil, r.malformed("a control character must be escaped")
		case c != '\\':
			text = append(text, c)
			r.pos++
			continue
		}
		if r.pos+1 >= len(r.data) {
			break
		}
		c = r.data[r.pos+1]
		r.pos += 2
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			text = append(text, "\"\\/\b\f\n\r\t"[i])
			continue
		}
		if c != 'u' {
			return nil, r.malformed("the escape \\%c does not exist", c)
		}
		char, ok := r.hex4()
		if !ok {
			return nil, r.malformed("four hexadecimal digits are expected after \\u")
		}
		if utf16.IsSurrogate(char) {
			if len(r.data)-r.pos < 2 || r.data[r.pos] != '\\' || r.data[r.pos+1] != 'u' {
				return nil, r.malformed("a surrogate has no partner")
			}
			r.pos += 2
			low, ok := r.hex4()
			if char = utf16.DecodeRune(char, low); !ok || char == utf8.RuneError {
				return nil, r.malformed("a surrogate has no partner")
			}
		}
		text = utf8.AppendRune(text, char)
	}
	r.pos = len(r.data)
	return nil, r.malformed("a string does not end")
}

func (r *Reader) hex4() (char rune, ok bool) {
	if len(r.data)-r.pos < 4 {
		return 0, false
	}
	for _, c := range r.data[r.pos : r.pos+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		char = char<<4 | rune(c)
	}
	r.pos += 4
	return char, true
}
