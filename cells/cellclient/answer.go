// SPDX-License-Identifier: Apache-2.0

package cellclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

// fetch sends one request that is answered with a T, which check looks at. Check may be nil. With
// an error there is no T.
func fetch[T any](ctx context.Context, c *Client, method, path string, body any, check func(*T) error) (T, error) {
	var answer T
	return fetchInto(ctx, c, method, path, body, answer, check)
}

// fetchInto is fetch into an answer that holds something already.
func fetchInto[T any](
	ctx context.Context, c *Client, method, path string, body any, answer T, check func(*T) error,
) (T, error) {
	var none T
	err := c.call(ctx, method, path, body, &answer, func() error {
		if check == nil {
			return nil
		}
		return check(&answer)
	})
	if err != nil {
		return none, err
	}
	return answer, nil
}

// list is a list that has to be in an answer, be it empty or null: an object without it is
// something else's answer.
type list[T any] struct {
	items []T
	there bool
}

// UnmarshalJSON reads the list.
func (l *list[T]) UnmarshalJSON(data []byte) error {
	l.there = true
	return json.Unmarshal(data, &l.items)
}

// checkGiven checks that the list was in the answer, under that name.
func (l *list[T]) checkGiven(name string) error {
	if !l.there {
		return broken("an answer without %q", name)
	}
	return nil
}

// pathOf is a path with an untrusted name in it. Names that are empty, "." or ".." are rejected.
func pathOf(parent, name, rest string) (string, error) {
	if name == "" || name == "." || name == ".." {
		return "", &cellwire.Error{Status: http.StatusNotFound, Code: cellwire.CodeNotFound,
			Message: fmt.Sprintf("There is nothing named %q.", name)}
	}
	return parent + url.PathEscape(name) + rest, nil
}
