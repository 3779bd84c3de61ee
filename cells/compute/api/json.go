// SPDX-License-Identifier: Apache-2.0

package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Object is a JSON object that is written member by member, in the order in which Nova's answers
// have them. Which members a server has depends on the microversion and the client, so there is no
// type for it. Cost: no reflection; the bytes are copied once into the answer.
type Object struct{ text []byte }

// List is a JSON array of objects.
type List []*Object

// NewObject is an object with space for so many bytes.
func NewObject(size int) *Object { return &Object{text: make([]byte, 0, size)} }

// Size is at least how many bytes a list takes.
func (l List) Size() int {
	n := len("[]")
	for _, o := range l {
		n += len(o.text) + len("{},")
	}
	return n
}

// Add adds a member. value is a string, *string, bool, int, int64, object, list, []string,
// map[string]string, time.Time (as Nova writes them: whole seconds, Z) or nil; a nil pointer is
// null, and a nil list empty.
func (o *Object) Add(name string, value any) *Object {
	if len(o.text) == 0 {
		o.text = append(o.text, '{')
	} else {
		o.text = append(o.text, ',')
	}
	o.text = jsonkit.AppendString(o.text, name)
	o.text = append(o.text, ':')
	o.text = appendValue(o.text, value)
	return o
}

// Bytes is the object as JSON. Nothing can be added after it.
func (o *Object) Bytes() []byte {
	if len(o.text) == 0 {
		return []byte("{}")
	}
	return append(o.text, '}')
}

func (o *Object) appendTo(b []byte) []byte {
	if len(o.text) == 0 {
		return append(b, '{', '}')
	}
	return append(append(b, o.text...), '}')
}

func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		return jsonkit.AppendString(b, v)
	case *string:
		if v == nil {
			return append(b, "null"...)
		}
		return jsonkit.AppendString(b, *v)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case time.Time:
		return jsonkit.AppendString(b, v.UTC().Format("2006-01-02T15:04:05Z"))
	case []string:
		return jsonkit.AppendStrings(b, v)
	case map[string]string:
		b = append(b, '{')
		for _, key := range slices.Sorted(maps.Keys(v)) {
			b = jsonkit.AppendString(jsonkit.AppendComma(b), key)
			b = append(b, ':')
			b = jsonkit.AppendString(b, v[key])
		}
		return append(b, '}')
	case *Object:
		return v.appendTo(b)
	case List:
		b = append(slices.Grow(b, v.Size()), '[')
		for _, o := range v {
			b = o.appendTo(jsonkit.AppendComma(b))
		}
		return append(b, ']')
	}
	panic(fmt.Sprintf("api: a %T cannot be a member of an object", value))
}

// encode writes the body of an answer: an object as it is, anything else through encoding/json,
// with <, > and & as they are.
func encode(body any) ([]byte, error) {
	if o, is := body.(*Object); is {
		return o.Bytes(), nil
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// AddNumber adds a number that need not be whole; one that is has a .0, as in Nova.
func (o *Object) AddNumber(name string, value float64) *Object {
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return o.AddRaw(name, text)
}

// AddRaw adds a member whose value is JSON already.
func (o *Object) AddRaw(name, value string) *Object {
	o.Add(name, nil)
	o.text = append(o.text[:len(o.text)-len("null")], value...)
	return o
}

// Time is a time as Python's isoformat has it, with microseconds and without a zone; null for
// none.
func Time(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000")
}

// OrNull is null for "".
func OrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// OrEmpty is "" for none.
func OrEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// StatusUnknown is shown for what is in a cell that is down, and for a state that Nova does not
// have.
const StatusUnknown = "UNKNOWN"
