// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"encoding/json"
	"html"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// Exception is a difference that is meant.
type Exception struct {
	Name string
	// Reason is why ours is as it is.
	Reason string
	// Applies says whether a difference of an exchange is this one.
	Applies func(x *Exchange, d Difference) bool
	// Diverges says that the two services may hold different things from then on, so that the world
	// must end.
	Diverges bool
}

// exceptionFor finds the exception that a difference is.
func exceptionFor(x *Exchange, d Difference) *Exception {
	for i := range Exceptions {
		if Exceptions[i].Applies(x, d) {
			return &Exceptions[i]
		}
	}
	return nil
}

// detail is the sentence in an error of the real service; its whole body when that is in HTML or
// text.
func (x *Exchange) detail() string {
	if detail, ok := errorOf(x.Real.Body)["detail"].(string); ok {
		return detail
	}
	return html.UnescapeString(x.Real.Body)
}

// statuses says that the difference is that of the statuses, and which they are.
func (x *Exchange) statuses(d Difference, real, ours int) bool {
	return d.What == "status" && x.Real.Status == real && x.Ours.Status == ours
}

// Exceptions are all differences that are meant.
var Exceptions = []Exception{
	{
		Name: "over-committed provider",
		Reason: "A provider that holds more than its capacity takes allocations by which nothing grows that is " +
			"over capacity (LP#2104040); the real one refuses them until a later version.",
		Diverges: true,
		Applies: func(x *Exchange, d Difference) bool {
			return x.statuses(d, http.StatusConflict, http.StatusNoContent) &&
				strings.Contains(x.detail(), "Unable to allocate inventory") && x.overCommitted()
		},
	},
	{
		Name: "over-committed provider, refused for something else",
		Reason: "The same in a reshape that is refused anyway, since it takes away inventory that is in use: the " +
			"real one looks at capacity first.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "error code" && x.Step.Path == "/reshaper" && d.Real == "placement.undefined_code" &&
				d.Ours == "placement.inventory.inuse" && x.claimsNoMore()
		},
	},
	{
		Name: "a duplicate key",
		Reason: "Ours checks each value of a duplicate key in an object, as it reads the body once; the real one " +
			"sees the last only.",
		Diverges: true,
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "status" && x.Ours.Status == http.StatusBadRequest &&
				strings.HasPrefix(x.Request.Body, `{"name":"twice",`) &&
				strings.Count(x.Request.Body, `"name":`) == 2
		},
	},
	{
		Name: "Vary with errors",
		Reason: "Ours says Vary with every answer, so that no cache mixes versions up; the real one leaves it away " +
			"with errors that are raised as exceptions.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "Vary" && x.Real.Status >= 400 && d.Real == "[]" && d.Ours == "[openstack-api-version]"
		},
	},
	{
		Name: "Allow with 405",
		Reason: "Ours says with each 405 which methods there are; the real one does not where a method came with a " +
			"later microversion.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "Allow" && x.Real.Status == http.StatusMethodNotAllowed && d.Real == "" && d.Ours != ""
		},
	},
	{
		Name: "500: inventories of classes that cannot be",
		Reason: "The real one does not validate what stands under a name that no resource class can have, and fails " +
			"on it when it is no object, or on the total that an empty string or list does not have; it is a 400.",
		Applies: func(x *Exchange, d Difference) bool {
			return x.statuses(d, http.StatusInternalServerError, http.StatusBadRequest) &&
				strings.Contains(x.Request.Body, `"inventories":`) && notAnObject.MatchString(x.detail())
		},
	},
	{
		Name: "errors in JSON",
		Reason: "Ours gives an error in JSON unless the client likes HTML better; the real one gives HTML or text " +
			"also to clients that like them both the same.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "media type" && x.Real.Status >= 400 && d.Ours == "application/json" &&
				x.Request.Header.Get("Accept") != "application/json"
		},
	},
	{
		Name:   "the form of 401",
		Reason: "Ours has the form of all other errors; the real one makes it in a layer that knows nothing of them.",
		Applies: func(x *Exchange, d Difference) bool {
			return x.Real.Status == http.StatusUnauthorized &&
				(strings.HasPrefix(d.What, "error ") || d.What == "media type")
		},
	},
	{
		Name: "the media type of the request",
		Reason: "Media types are compared without regard to case and parameters, as RFC 9110 wants; the real one " +
			"compares the letters.",
		Diverges: true,
		Applies: func(x *Exchange, d Difference) bool {
			sent := x.Request.Header.Get("Content-Type")
			return d.What == "status" && x.Real.Status == http.StatusUnsupportedMediaType &&
				sent != "application/json" &&
				strings.EqualFold(strings.TrimSpace(strings.SplitN(sent, ";", 2)[0]), "application/json")
		},
	},
	{
		Name: "parameters in Accept",
		Reason: "Media types that a client accepts are compared without their parameters; for the real one " +
			"application/json; charset=utf-8 is no JSON.",
		Diverges: true,
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "status" && x.Real.Status == http.StatusNotAcceptable &&
				strings.HasPrefix(x.Request.Header.Get("Accept"), "application/json; charset")
		},
	},
	{
		Name:     "a provider without a name",
		Reason:   "PUT /resource_providers/{uuid} refuses an empty name as POST does; the real one takes it.",
		Diverges: true,
		Applies: func(x *Exchange, d Difference) bool {
			var body struct{ Name *string }
			return x.statuses(d, http.StatusOK, http.StatusBadRequest) && x.Step.Method == http.MethodPut &&
				routeOf(x.Step.Path) == "/resource_providers/{uuid}" &&
				json.Unmarshal([]byte(x.Request.Body), &body) == nil && body.Name != nil && *body.Name == ""
		},
	},
	{
		Name:   "500: half a surrogate pair",
		Reason: "The real one cannot encode such a string for its answer or its database; it is a 400.",
		Applies: func(x *Exchange, d Difference) bool {
			return x.statuses(d, http.StatusInternalServerError, http.StatusBadRequest) &&
				strings.Contains(x.Request.Body, `\ud800`)
		},
	},
	{
		Name: "500: amounts beyond 64 bits",
		Reason: "The real one hands such an amount in a query to the database, which cannot take it; nothing has " +
			"that much, so it is an empty answer.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "status" && x.Real.Status == http.StatusInternalServerError &&
				x.Ours.Status <= http.StatusBadRequest &&
				strings.Contains(x.Request.Target, "99999999999999999999") &&
				strings.Contains(x.detail(), "Python int too large to convert to SQLite INTEGER")
		},
	},
	{
		Name: "several limits",
		Reason: "Of several limits the real one validates the last and uses the first: a 500 when that is no " +
			"number, and an odd part of the list when it is not positive. Ours refuses those.",
		Applies: func(x *Exchange, d Difference) bool {
			limits := 0
			for _, p := range x.Step.Query {
				if p.Name == "limit" || p.Raw && p.Value == "limit" {
					limits++
				}
			}
			return d.What == "status" && limits > 1 && x.Ours.Status == http.StatusBadRequest &&
				(x.Real.Status == http.StatusOK || strings.Contains(x.detail(), "invalid literal for int()"))
		},
	},
	{
		Name: "500: a child that shares",
		Reason: "The real one looks for the summary of a sharing provider below its own id as a root, and does not " +
			"find it when the provider is a child and shares with another tree " +
			"(_build_provider_summaries gets the ids of sharing providers as if they were roots).",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "status" && x.Real.Status == http.StatusInternalServerError &&
				x.Ours.Status <= http.StatusBadRequest &&
				slices.Contains(slices.Collect(maps.Values(x.sharing)), true) &&
				bareNumber.MatchString(x.detail())
		},
	},
	{
		Name: "amounts added up wrongly",
		Reason: "When groups ask for the same class and group_policy is not none, candidates of the real one share " +
			"the objects with the amounts, so that some get those of others on top, " +
			"and may be dropped for it. Ours is compared with its answer to group_policy=none, cut down to what the " +
			"policy allows.",
		Applies: func(_ *Exchange, d Difference) bool { return d.What == wrongAmounts },
	},
	{
		Name: "one anchor of several",
		Reason: "A group without a suffix that sharing providers alone can meet is good for every tree they share " +
			"with; the real one keeps it for one of them by chance (AllocationRequest.__eq__ " +
			"leaves the anchor out), and finds nothing when the groups with a suffix are met in another. Ours has " +
			"all that the real one has, and besides only such candidates.",
		Applies: func(_ *Exchange, d Difference) bool { return d.What == lostAnchors },
	},
	{
		Name: "Last-Modified of no inventories",
		Reason: "From 1.15 on every answer with a body says when it was last modified; the real one leaves it away " +
			"for a provider without inventories.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "Last-Modified" && d.Ours == "true" && strings.HasSuffix(x.Step.Path, "/inventories") &&
				strings.Contains(x.Real.Body, `"inventories": {}`)
		},
	},
	{
		Name: "Last-Modified of a child that is renamed",
		Reason: "From 1.15 on every answer with a body says when it was last modified; the real one leaves it away " +
			"in the answer to PUT /resource_providers/{uuid} for a provider with a parent, also when that takes it " +
			"from its parent.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "Last-Modified" && d.Ours == "true" && x.Step.Method == http.MethodPut &&
				routeOf(x.Step.Path) == "/resource_providers/{uuid}" &&
				(strings.Contains(x.Real.Body, `"parent_provider_uuid": "`) ||
					strings.Contains(x.Request.Body, `"parent_provider_uuid":null`))
		},
	},
	{
		Name:   "newer standard names",
		Reason: "Ours knows the standard traits and resource classes of newer os-traits and os-resource-classes.",
		Applies: func(x *Exchange, d Difference) bool {
			return d.What == "body" && (x.Step.Path == "/traits" || x.Step.Path == "/resource_classes") && x.onlyNewer()
		},
	},
	{
		Name: "newer microversions",
		Reason: "Ours can have microversions that the real one does not have: they are in the version document, in " +
			"the error about one that neither has, and what latest stands for.",
		Applies: func(x *Exchange, d Difference) bool {
			return wire.MaxVersion > newest &&
				(x.Step.Path == "/" || d.What == "error max_version" || x.Step.Version == "placement latest")
		},
	},
}

var notAnObject = regexp.MustCompile(
	`'\w+' object is not (?:iterable|a mapping)|dictionary update sequence element|unsupported operand type\(s\) ` +
		`for -: 'NoneType' and 'int'`)

// bareNumber is the whole message of a KeyError about an id.
var bareNumber = regexp.MustCompile(`(?:\n\n|<br />)\s*\d+\s*(?:$|</body>)`)

// overCommitted says that a write left something over its capacity, and nothing that is over
// capacity grew by it.
func (x *Exchange) overCommitted() bool {
	over := false
	for key, now := range x.After {
		if now.Used > now.Capacity {
			over = true
			if now.Used > x.Before[key].Used {
				return false
			}
		}
	}
	return over
}

var overCapacity = regexp.MustCompile(
	`Unable to create allocation for '(\w+)' on resource provider '([0-9a-f-]+)'\. The requested amount would ` +
		`exceed the capacity`)

// claimsNoMore says that a reshape asks for no more of what the real service says is over capacity
// than was used before.
func (x *Exchange) claimsNoMore() bool {
	m := overCapacity.FindStringSubmatch(x.detail())
	var body struct {
		Allocations map[string]struct {
			Allocations map[string]struct {
				Resources map[string]int64
			}
		}
	}
	if m == nil || json.Unmarshal([]byte(x.Request.Body), &body) != nil {
		return false
	}
	asked := int64(0)
	for _, consumer := range body.Allocations {
		asked += consumer.Allocations[m[2]].Resources[m[1]]
	}
	return asked <= x.Before[[2]string{m[2], m[1]}].Used
}

// onlyNewer says that two lists are the same but for names that only ours can have.
func (x *Exchange) onlyNewer() bool {
	left := map[string]int{}
	for _, name := range namesOf(x.Ours.Body) {
		left[name]++
	}
	for _, name := range namesOf(x.Real.Body) {
		left[name]--
	}
	for name, n := range left {
		if n != 0 && (n != 1 || !x.newer[name]) {
			return false
		}
	}
	return true
}
