// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// matcher is the address of a spec: four fields, each of which a device's must fit.
type matcher struct {
	fields [4]field // domain, bus, slot, function
	// single is the one address that it stands for, nil if wildcards let it be several. If a
	// physical function is there, Nova takes the spec for its virtual functions too.
	single *machine.Address
}

// field is a part of an address: any, a number, or an expression for its digits as the kernel
// writes them. An expression that is plain digits has its number too; the expression decides.
type field struct {
	number     *uint32
	expression *regexp.Regexp
}

var parts = [4]struct {
	name   string
	digits int
	max    uint32
}{{"domain", 4, 0xffffffff}, {"bus", 2, 0xff}, {"slot", 2, 0x1f}, {"function", 1, 7}}

func numbers(a machine.Address) [4]uint32 {
	return [4]uint32{a.Domain, uint32(a.Bus), uint32(a.Slot), uint32(a.Function)}
}

func (m matcher) match(a machine.Address) bool {
	for i, n := range numbers(a) {
		switch f := m.fields[i]; {
		case f.expression != nil:
			if !f.expression.MatchString(fmt.Sprintf("%0*x", parts[i].digits, n)) {
				return false
			}
		case f.number != nil && *f.number != n:
			return false
		}
	}
	return true
}

// parseAddress reads either form; a missing address fits all devices.
func parseAddress(raw json.RawMessage) (matcher, error) {
	if absent(raw) {
		return matcher{}, nil
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return parseGlob(text)
	}
	var table map[string]json.RawMessage
	if json.Unmarshal(raw, &table) == nil {
		return parseTable(table)
	}
	return matcher{}, errors.New(
		"is neither a text such as \"0000:06:*.*\" nor a table with domain, bus, slot and function")
}

// parseGlob reads [[[[domain]:]bus]:][slot][.[function]], in which an empty or missing field and
// "*" are any.
func parseGlob(text string) (matcher, error) {
	before, function, _ := strings.Cut(text, ".")
	written := [4]string{3: function}
	list := strings.Split(before, ":")
	if len(list) > 3 {
		return matcher{}, fmt.Errorf("%.60q has more than domain, bus and slot before the dot", text)
	}
	copy(written[3-len(list):3], list)
	var m matcher
	for i, s := range written {
		s = strings.TrimSpace(s)
		if s == "" || s == "*" {
			continue
		}
		n, err := strconv.ParseUint(s, 16, 32)
		if err != nil || uint32(n) > parts[i].max {
			return matcher{}, fmt.Errorf("%.60q: the %s %.40q is neither a hexadecimal number up to %x nor \"*\"",
				text, parts[i].name, s, parts[i].max)
		}
		v := uint32(n)
		m.fields[i].number = &v
	}
	m.single = m.one()
	return m, nil
}

// maxExpression bounds a regular expression, in bytes.
const maxExpression = 256

// parseTable reads regular expressions by field. As in Nova they are held against the beginning of
// the field's digits.
func parseTable(table map[string]json.RawMessage) (matcher, error) {
	var m matcher
	for name, raw := range table {
		i := -1
		for j := range parts {
			if parts[j].name == name {
				i = j
			}
		}
		if i < 0 {
			return matcher{}, fmt.Errorf("%.40q is not a part of an address (domain, bus, slot, function)", name)
		}
		var text string
		if err := json.Unmarshal(raw, &text); err != nil || bytes.Equal(raw, []byte("null")) {
			return matcher{}, fmt.Errorf("the %s must be a text with a regular expression", name)
		}
		if len(text) > maxExpression {
			return matcher{}, fmt.Errorf("the expression of the %s has %d characters; the limit is %d",
				name, len(text), maxExpression)
		}
		// Alone first: a parenthesis too many would close the one that is put around it.
		if _, err := regexp.Compile(text); err != nil {
			return matcher{},
				fmt.Errorf(
					"the %s is not a valid regular expression (lookahead and back references are not supported): %w",
					name, err)
		}
		expression, err := regexp.Compile(`^(?:` + text + `)`)
		if err != nil {
			return matcher{}, fmt.Errorf("the expression of the %s: %w", name, err)
		}
		m.fields[i].expression = expression
		// Plain digits are one number, if all of them are there.
		if n, err := strconv.ParseUint(text, 16, 32); err == nil &&
			len(text) >= parts[i].digits && uint32(n) <= parts[i].max {
			v := uint32(n)
			m.fields[i].number = &v
		}
	}
	m.single = m.one()
	return m, nil
}

// one is the address that four numbers make.
func (m matcher) one() *machine.Address {
	for _, f := range m.fields {
		if f.number == nil {
			return nil
		}
	}
	return &machine.Address{
		Domain: *m.fields[0].number, Bus: uint8(*m.fields[1].number), Slot: uint8(*m.fields[2].number),
		Function: uint8(*m.fields[3].number),
	}
}
