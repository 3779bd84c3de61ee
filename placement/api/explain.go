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
const noGroupPolicy = "The request has several groups with suffixes and no group_policy: GET /allocation_candidates " +
	"answers 400 to clients that do not send the header " +
	wire.HeaderExtensions +
	": group_policy. Add group_policy=none or group_policy=isolate, or set [placement] extensions = " +
	"[\"group_policy\"] in the configuration " +
	"of the server. With group_policy=none: "

// noResourceless begins the verdict on a request with groups that only the extension serves.
const noResourceless = "%s. The extension resourceless serves it: clients that do not send the header " +
	wire.HeaderExtensions + ": resourceless get %s. Set [placement] extensions = [\"resourceless\"] " +
	"in the configuration of the server for them. With the extension: "

// explainCandidates is GET /allocation_candidates/explain: it explains the candidates of the same
// query. It is not a call of Placement. Its answer has the same form at every microversion that has
// allocation candidates; limit bounds how many of them are counted. Unknown names are explained and
// not refused.
//
// Cost: that of candidates.Explain, which evaluates every provider.
func explainCandidates(x *exchange) error {
	// A request without its required group_policy is explained, together with its refusal.
	ext, optional := x.extensions(), wire.ReadExtensions([]string{wire.ExtGroupPolicy})
	cq, err := candidates.ReadURLQuery(x.R.URL.RawQuery, x.v, ext|optional)
	if err != nil {
		return err
	}
	refused := ""
	if _, err := candidates.ReadURLQuery(x.R.URL.RawQuery, x.v, ext&^optional|x.api.granted); err != nil {
		refused = noGroupPolicy
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	e, err := candidates.Explain(x.R.Context(), s,
		&cq.Request, candidates.Options{Limit: int(min(cq.Limit, maxCandidates))})
	if errors.Is(err, candidates.ErrTooMuch) {
		return badRequest("This cannot be explained: %s. Ask for less at once.", err.Error())
	}
	if err != nil {
		return err
	}
	if cq.Resourceless && !x.api.granted.Has(wire.ExtResourceless) {
		refused += withoutResourceless(&cq.Request)
	}
	e.Verdict = refused + e.Verdict
	body, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode the explanation: %w", err)
	}
	return x.json(http.StatusOK, body, time.Time{})
}

// withoutResourceless describes what becomes of the request without the extension resourceless, ""
// if that makes no difference.
func withoutResourceless(r *candidates.Request) string {
	var what, get string
	for i := range r.Groups {
		switch g := &r.Groups[i]; {
		case len(g.Resources) > 0:
		case g.Suffix == "":
			return fmt.Sprintf(noResourceless, "The group without a suffix has no resources", "400")
		case len(g.Required)+len(g.MemberOf) == 0:
			what, get = fmt.Sprintf("Group %s has no resources, and requires neither a trait nor an aggregate",
				g.Suffix), "no candidates"
		case g.InTree != "" && what == "":
			what, get = fmt.Sprintf("Group %s has no resources, and an in_tree", g.Suffix), "candidates of any tree"
		}
	}
	if what == "" {
		return ""
	}
	return fmt.Sprintf(noResourceless, what, get)
}
