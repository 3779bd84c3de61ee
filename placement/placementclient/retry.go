// SPDX-License-Identifier: Apache-2.0

package placementclient

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// MaxRetryAfter is the longest Retry-After that is waited for within one call.
const MaxRetryAfter = 10 * time.Second

// newRetrying makes the HTTP client. It follows no redirect: credentials go only where they were
// meant to go.
func newRetrying(cfg Config) *retryablehttp.Client {
	client := retryablehttp.NewClient()
	client.HTTPClient = &http.Client{
		Transport: cfg.Transport, Timeout: cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	client.RetryMax = cfg.Retries
	client.RetryWaitMin, client.RetryWaitMax = 200*time.Millisecond, 2*time.Second
	client.Backoff = retryablehttp.RateLimitLinearJitterBackoff // heeds Retry-After
	client.CheckRetry = safeToRepeat
	client.ErrorHandler = retryablehttp.PassthroughErrorHandler
	client.Logger = nil
	return client
}

// safeToRepeat allows another try for reads that failed on the way or met an overloaded server, and
// for any request that never reached a server, or that Placement itself answered with 429: it was
// not carried out. A write whose answer was lost is never sent again: it may have happened.
func safeToRepeat(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if err != nil {
		var urlErr *url.Error
		// a server that hangs hangs the next time too
		read := errors.As(err, &urlErr) && urlErr.Op == "Get" && !urlErr.Timeout()
		return unsent(err) || read, nil
	}
	limited := resp.StatusCode == http.StatusTooManyRequests && byPlacement(resp)
	if !limited && (resp.Request == nil || resp.Request.Method != http.MethodGet) {
		return false, nil
	}
	switch resp.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusServiceUnavailable, http.StatusTooManyRequests:
		return worthWaiting(ctx, retryAfter(resp)), nil
	}
	return false, nil
}

// byPlacement reports whether an answer is of Placement itself, and not of what is before it:
// Placement says its microversion.
func byPlacement(resp *http.Response) bool { return resp.Header.Get(wire.HeaderVersion) != "" }

// retryAfter is the pause that an answer asks for; 0 if it asks for none.
func retryAfter(resp *http.Response) time.Duration {
	return retryablehttp.RateLimitLinearJitterBackoff(0, 0, 0, resp)
}

// worthWaiting reports whether a pause is short enough to be spent within the call.
func worthWaiting(ctx context.Context, pause time.Duration) bool {
	deadline, bounded := ctx.Deadline()
	return pause >= 0 && pause <= MaxRetryAfter && (!bounded || pause < time.Until(deadline))
}
