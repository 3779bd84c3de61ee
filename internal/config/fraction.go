// SPDX-License-Identifier: Apache-2.0

package config

import (
	"strconv"
	"strings"
)

// fraction is a number from 0 to 1.
type fraction struct {
	at  *float64
	def float64
}

func (f fraction) reset() { *f.at = f.def }

func (f fraction) set(v any) *fault {
	var x float64
	switch v := v.(type) {
	case float64:
		x = v
	case int64:
		x = float64(v)
	default:
		return wrongType(v, f.allowed())
	}
	if !(x >= 0 && x <= 1) { // also true for NaN
		return faultf("write "+f.allowed(), "%v is out of bounds", x)
	}
	*f.at = x
	return nil
}

func (f fraction) fromText(s string) (any, *fault) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return nil, faultf("write "+f.allowed(), "%s is not a number", shown(s))
	}
	return x, nil
}

// format writes a TOML float, which has a point.
func (f fraction) format() string {
	s := strconv.FormatFloat(*f.at, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

func (f fraction) allowed() string { return "a number from 0 to 1" }
