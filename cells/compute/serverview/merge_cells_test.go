// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
)

const mergeTimeout = 10 * time.Second

// fault is what a cell does instead of answering.
type fault func(*http.Request) (*http.Response, error)

func hang(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func refuse(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }

func status(code int) fault {
	return func(*http.Request) (*http.Response, error) {
		return respond(code, cellwire.Error{Code: "x", Message: "y"}), nil
	}
}

func respond(code int, v any) *http.Response {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data))}
}

// listCell answers queries about rows, whose keys are in the order of the query that the test
// makes.
type listCell struct {
	rows []cellwire.Row // in any order

	fault   fault
	faultAt int                                                        // the batch, from 0, that the fault happens at
	lie     func(batch int, p cellwire.ServerPage) cellwire.ServerPage // changes pages
	delay   time.Duration

	mu      sync.Mutex
	batches int
	failed  bool
	limits  []int
	at      []time.Time // of the batches
}

// RoundTrip answers a query.
func (l *listCell) RoundTrip(r *http.Request) (*http.Response, error) {
	var q cellwire.ServerQuery
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		return nil, err
	}
	l.mu.Lock()
	batch := l.batches
	l.batches++
	l.limits, l.at = append(l.limits, q.Limit), append(l.at, time.Now())
	failing := l.fault != nil && batch >= l.faultAt
	l.failed = l.failed || failing
	l.mu.Unlock()
	if failing {
		return l.fault(r)
	}
	if l.delay > 0 {
		select {
		case <-time.After(l.delay):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	page := naiveMerge([][]cellwire.Row{l.rows}, q)
	if l.lie != nil {
		page = l.lie(batch, page)
	}
	return respond(200, page), nil
}

// naiveMerge is what a list is to be: all rows, sorted, without those before the marker and without
// repetitions, cut at the limit.
func naiveMerge(cells [][]cellwire.Row, q cellwire.ServerQuery) cellwire.ServerPage {
	var all []cellwire.Row
	for _, rows := range cells {
		all = append(all, rows...)
	}
	slices.SortStableFunc(all, func(a, b cellwire.Row) int { return naiveCompare(q.Sort, a.Key, b.Key) })
	var page cellwire.ServerPage
	seen := map[string]bool{}
	for _, row := range all {
		if q.After != nil && naiveCompare(q.Sort, row.Key, q.After) <= 0 || seen[row.Server.UUID] {
			continue
		}
		if len(page.Rows) == q.Limit {
			page.More = true
			break
		}
		seen[row.Server.UUID] = true
		page.Rows = append(page.Rows, row)
	}
	return page
}

func naiveCompare(sort []cellwire.SortKey, a, b cellwire.Key) int {
	for i := range a {
		var c int
		if n, ok := a[i].(int64); ok {
			c = cmp.Compare(n, b[i].(int64))
		} else {
			c = cmp.Compare(a[i].(string), b[i].(string))
		}
		if i < len(sort) && sort[i].Desc {
			c = -c
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

// row is a server with a key.
func row(uuid string, values ...any) cellwire.Row {
	return cellwire.Row{Server: cellwire.Server{UUID: uuid, Name: "name of " + uuid},
		Key: append(cellwire.Key(values), uuid)}
}

// rowsOf are n servers of a cell, created at start, start+step, start+2 step, ...
func rowsOf(cell string, n int, start, step int64) []cellwire.Row {
	var rows []cellwire.Row
	for i := range n {
		rows = append(rows, row(fmt.Sprintf("%s-%04d", cell, i), start+int64(i)*step))
	}
	return rows
}

var byCreation = []cellwire.SortKey{{Key: "created_at"}}

// gathererOf gives a gatherer of cells, and them.
func gathererOf(fakes ...*listCell) (*gather.Gatherer, []apidb.Cell) {
	transports := map[string]*listCell{}
	var cells []apidb.Cell
	for i, f := range fakes {
		cell := apidb.Cell{UUID: fmt.Sprintf("cell-%d", i),
			Name: fmt.Sprintf("cell%d", i), URL: fmt.Sprintf("http://cell%d", i)}
		transports[cell.UUID] = f
		cells = append(cells, cell)
	}
	return gather.New(gather.Options{
		Client: func(c apidb.Cell) (*cellclient.Client, error) {
			return cellclient.New(cellclient.Config{URL: c.URL, Transport: transports[c.UUID]})
		},
		Timeout: mergeTimeout, Logger: zerolog.Nop(),
	}), cells
}

func namesOf(cells []apidb.Cell) []string {
	var names []string
	for _, c := range cells {
		names = append(names, c.Name)
	}
	return names
}
