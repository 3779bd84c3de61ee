// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"cmp"
	"fmt"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// keyOrder is how keys follow each other.
type keyOrder []keyColumn

// keyColumn is one value of a key.
type keyColumn struct {
	name    string
	integer bool
	desc    bool
}

// keyOrderOf is the order of keys of a query: its columns, and the uuid.
func keyOrderOf(sort []cellwire.SortKey) keyOrder {
	o := make(keyOrder, 0, len(sort)+1)
	for _, k := range sort {
		o = append(o, keyColumn{name: k.Key, integer: cellwire.Integer(k.Key), desc: k.Desc})
	}
	return append(o, keyColumn{name: "uuid"})
}

// compare compares keys that fit.
func (o keyOrder) compare(a, b cellwire.Key) int {
	for i, column := range o {
		var c int
		if column.integer {
			c = cmp.Compare(a[i].(int64), b[i].(int64))
		} else {
			c = cmp.Compare(a[i].(string), b[i].(string))
		}
		switch {
		case c == 0:
		case column.desc:
			return -c
		default:
			return c
		}
	}
	return 0
}

// checkKey checks that a key can be compared.
func (o keyOrder) checkKey(key cellwire.Key) error {
	if len(key) != len(o) {
		return fmt.Errorf("a key of %d values instead of %d", len(key), len(o))
	}
	for i, column := range o {
		_, integer := key[i].(int64)
		_, text := key[i].(string)
		if integer != column.integer || text == column.integer {
			return fmt.Errorf("the %s of a key is a %T", column.name, key[i])
		}
	}
	return nil
}

// checkPage checks that a page is what a source was asked for.
func (o keyOrder) checkPage(page cellwire.ServerPage, s *cellSource, limit int) error {
	if len(page.Rows) > limit {
		return fmt.Errorf("a page of %d servers instead of at most %d", len(page.Rows), limit)
	}
	if page.More && len(page.Rows) == 0 {
		return fmt.Errorf("an empty page that is not the last")
	}
	last, here := s.last, make(map[string]struct{}, len(page.Rows))
	for i := range page.Rows {
		row := &page.Rows[i] // large
		if err := o.checkKey(row.Key); err != nil {
			return fmt.Errorf("row %d of a page has %w", i, err)
		}
		uuid := row.Server.UUID
		if uuid == "" || row.Key[len(o)-1] != uuid {
			return fmt.Errorf("row %d of a page has server %.64q and a key of %.64q", i, uuid, row.Key[len(o)-1])
		}
		_, before := s.seen[uuid]
		_, twice := here[uuid]
		if before || twice {
			return fmt.Errorf("server %.64q is repeated", uuid)
		}
		if last != nil && o.compare(last, row.Key) >= 0 {
			return fmt.Errorf("row %d of a page, server %.64q, is not after the one before", i, uuid)
		}
		here[uuid], last = struct{}{}, row.Key
	}
	return nil
}
