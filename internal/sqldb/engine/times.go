// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"time"
)

// TimeScan reads a time column, as the engines and their drivers give it; NULL is the zero time.
type TimeScan struct{ To *time.Time }

// Scan implements sql.Scanner.
func (s TimeScan) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s.To = time.Time{}
		return nil
	case time.Time:
		*s.To = v.UTC()
		return nil
	case []byte:
		return s.parse(string(v))
	case string:
		return s.parse(v)
	}
	return fmt.Errorf("a time column holds a %T", src)
}

// parse parses the usual form by hand, since package time would take most of the
// time of loading a large database, and leaves the rest to package time.
func (s TimeScan) parse(text string) error {
	if len(text) >= 19 && (len(text) == 19 || len(text) == 26) && text[4] == '-' && text[7] == '-' && text[10] == ' ' &&
		text[13] == ':' && text[16] == ':' &&
		(len(text) == 19 || text[19] == '.') {
		ok := true
		num := func(from, to int) int {
			n := 0
			for _, c := range []byte(text[from:to]) {
				if c < '0' || c > '9' {
					ok = false
				}
				n = n*10 + int(c-'0')
			}
			return n
		}
		micros := 0
		if len(text) == 26 {
			micros = num(20, 26)
		}
		month, day, hour, minute, second := num(5, 7), num(8, 10), num(11, 13), num(14, 16), num(17, 19)
		t := time.Date(num(0, 4), time.Month(month), day, hour, minute, second, micros*1000, time.UTC)
		// Date normalizes values out of range; an unchanged day was in range.
		if ok && hour < 24 && minute < 60 && second < 60 && int(t.Month()) == month && t.Day() == day {
			*s.To = t
			return nil
		}
	}
	for _, layout := range []string{"2006-01-02 15:04:05.999999999", time.RFC3339Nano,
		"2006-01-02T15:04:05.999999999"} {
		if t, err := time.Parse(layout, text); err == nil {
			*s.To = t.UTC()
			return nil
		}
	}
	return fmt.Errorf("a time column holds %.40q, which is not a time", text)
}
