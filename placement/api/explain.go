// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// noGroupPolicy begins the verdict on a request with several suffixed groups and no group_policy.
const noGroupPolicy = "The request has several groups with suffixes and no group_policy: GET /allocation_candidates answers 400 to clients that do not send the header " +
	wire.HeaderExtensions + ": group_policy. Add group_policy=none or group_policy=isolate, or set [placement] extensions = [\"group_policy\"] in the configuration " +
	"of the server. With group_policy=none: "

// explainCandidates is GET /allocation_candidates/explain: it explains the candidates of the same
// query. It is not a call of Placement. Its answer has the same form at every microversion that has
// allocation candidates; limit bounds how many of them are counted. Unknown names are explained and
// not refused.
//
// Cost: that of candidates.Explain, which evaluates every provider.
func explainCandidates(x *exchange) error {
	// A request without its required group_policy is explained, together with its refusal.
	ext, optional := x.extensions(), readExtensions([]string{wire.ExtGroupPolicy})
	cq, err := readCandidatesQuery(x.R.URL.RawQuery, x.v, ext|optional)
	if err != nil {
		return err
	}
	refused := ""
	if _, err := readCandidatesQuery(x.R.URL.RawQuery, x.v, ext&^optional|x.api.granted); err != nil {
		refused = noGroupPolicy
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	e, err := candidates.Explain(x.R.Context(), s, &cq.Request, candidates.Options{Limit: int(min(cq.limit, maxCandidates))})
	if errors.Is(err, candidates.ErrTooMuch) {
		return badRequest("This cannot be explained: %s. Ask for less at once.", err.Error())
	}
	if err != nil {
		return err
	}
	e.Verdict = refused + e.Verdict
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the explanation: %w", err)
	}
	return x.json(http.StatusOK, body, time.Time{})
}
