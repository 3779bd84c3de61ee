// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// CleanQuery extracts a query for allocation candidates from a log line, and escapes it.
func CleanQuery(text string) (string, error) {
	text = strings.TrimSpace(text)
	if _, query, found := strings.Cut(text, "?"); found {
		// A query that was sent contains neither spaces nor quotes.
		text, _, _ = strings.Cut(strings.TrimLeft(query, " "), " ")
		text, _, _ = strings.Cut(text, `"`)
	}
	if strings.HasSuffix(text, "…") {
		return "", errors.New("the query is truncated; find the complete query in the log of its client")
	}
	text = strings.TrimPrefix(text, "&")
	if text == "" {
		return "", errors.New("the query is empty; an example is resources=VCPU:4")
	}
	// Keep the order: groups are searched in the order of the query.
	var parts []string
	for part := range strings.SplitSeq(text, "&") {
		key, value, found := strings.Cut(part, "=")
		k, err := url.QueryUnescape(key)
		v, err2 := url.QueryUnescape(value)
		if err := errors.Join(err, err2); err != nil || !found {
			return "", fmt.Errorf("%q in the query is not NAME=VALUE, such as resources=VCPU:4", part)
		}
		parts = append(parts, url.QueryEscape(k)+"="+url.QueryEscape(v))
	}
	return strings.Join(parts, "&"), nil
}

// Explain asks Placement why a query for allocation candidates finds what it finds, with all
// extensions, and returns the JSON of a candidates.Explanation.
func (c *Client) Explain(ctx context.Context, query string) (json.RawMessage, error) {
	var answer json.RawMessage
	call := &Call{
		Method: http.MethodGet, Path: "/allocation_candidates/explain?" + query, Out: &answer,
		Extensions: strings.Join(wire.Extensions[:], ", "),
	}
	err := c.Send(ctx, call)
	var failed *Error
	switch base := c.Endpoint(); {
	case err == nil:
		return answer, nil
	case !errors.As(err, &failed):
		return nil, err
	case failed.Status == 0 && errors.Is(err, ErrRefused):
		return nil, failed.Cause
	case failed.Status == 0:
		return nil, fmt.Errorf("asking Placement: %w; check that it runs, "+
			"and the URL and certificates in --url or [placement_client]", err)
	case failed.Status == http.StatusNotFound && call.Header.Get(wire.HeaderVersion) != "":
		return nil, fmt.Errorf("the Placement at %s has no explanations (404): "+
			"only compute-agent's own Placement does, from microversion 1.10 on", base)
	case errors.Is(err, ErrRefused):
		return nil, fmt.Errorf("placement at %s denies the request (%d): %s; [placement_client] auth "+
			"needs a user that is allowed to list allocation candidates", base, failed.Status, failed.Detail)
	case errors.Is(err, ErrInvalid), errors.Is(err, ErrTooOld):
		return nil, fmt.Errorf("placement at %s rejects the query (%d): %s", base, failed.Status, failed.Detail)
	default:
		return nil, fmt.Errorf("placement at %s: %w; check --url or [placement_client] url", base, err)
	}
}
