// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// checkedBody is the body of the request as an object that fits the schema of its route; what does
// not fit is refused with Nova's text. A body that is not there counts as null.
func (x *Exchange) checkedBody() (*jsonkit.Object, error) {
	value, err := x.Decoded()
	if err != nil {
		return nil, err
	}
	if err := jsonkit.Validate(x.route.Body.At(x.Version), value); err != nil {
		return nil, osapi.BadRequest("%s", err)
	}
	return value.(*jsonkit.Object), nil // each schema of a body begins with its type
}

// Decoded is the body of the request as one value, nil for none.
func (x *Exchange) Decoded() (any, error) {
	if kind := x.R.Header.Get("Content-Type"); !acceptable(kind) {
		return nil, osapi.Errorf(http.StatusUnsupportedMediaType, "Unsupported Content-Type")
	}
	data, err := x.body()
	if err != nil || len(data) == 0 {
		return nil, err
	}
	value, err := jsonkit.Decode(data)
	if err != nil {
		return nil, osapi.BadRequest("Malformed request body").Because(err)
	}
	return value, nil
}

// The following read members of bodies that fit their schemas: a member of another type cannot be.

// MemberObject is a member that is an object, or nil.
func MemberObject(o *jsonkit.Object, name string) *jsonkit.Object {
	v, _ := o.Get(name)
	inner, _ := v.(*jsonkit.Object)
	return inner
}

// MemberList is a member that is a list, or nil.
func MemberList(o *jsonkit.Object, name string) []any {
	v, _ := o.Get(name)
	items, _ := v.([]any)
	return items
}

// MemberString is a member that is a string, "" without one or if it is null.
func MemberString(o *jsonkit.Object, name string) string {
	v, _ := o.Get(name)
	s, _ := v.(string)
	return s
}

// MemberText is a member that is a string or null.
func MemberText(o *jsonkit.Object, name string) *string {
	v, _ := o.Get(name)
	if s, is := v.(string); is {
		return &s
	}
	return nil
}

// MemberBool is a member that schema boolean describes; fallback without one.
func MemberBool(o *jsonkit.Object, name string, fallback bool) bool {
	switch v, _ := o.Get(name); v := v.(type) {
	case bool:
		return v
	case string:
		switch strings.ToLower(v) {
		case "true", "1", "on", "yes":
			return true
		}
		return false
	}
	return fallback
}

// MemberInt is a member that is an integer, or a string of digits; fallback without one. What
// is too large for an int64 is the largest: schemas with a maximum do not let it come so far.
func MemberInt(o *jsonkit.Object, name string, fallback int64) int64 {
	v, has := o.Get(name)
	if !has {
		return fallback
	}
	n, _ := strconv.ParseInt(jsonkit.PythonStr(v), 10, 64)
	return n
}
