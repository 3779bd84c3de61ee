// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Version is a microversion of the Placement API: the minor number of 1.minor. Only the values from
// MinVersion to MaxVersion exist.
type Version uint8

// The range of microversions that the API knows.
const (
	MinVersion = Version(Always)
	MaxVersion = Version(afterNewest - 1)
)

// Feature names what a microversion brought. Its value is the minor number of the first version
// that has it: each microversion of Placement brought exactly one change.
type Feature uint8

// The features, in the order of their microversions; a new one comes last, before afterNewest.
// History says more about each.
const (
	Always               Feature = iota // 1.0
	ProviderAggregates                  // 1.1
	ResourceClasses                     // 1.2
	MemberOfFilter                      // 1.3
	ResourcesFilter                     // 1.4
	DeleteInventories                   // 1.5
	Traits                              // 1.6
	BodilessClassPut                    // 1.7
	ProjectAndUser                      // 1.8
	ProjectUsages                       // 1.9
	AllocationCandidates                // 1.10
	AllocationsLink                     // 1.11
	AllocationsByUUID                   // 1.12
	PostAllocations                     // 1.13
	NestedProviders                     // 1.14
	CacheHeaders                        // 1.15
	CandidatesLimit                     // 1.16
	CandidatesRequired                  // 1.17
	RequiredFilter                      // 1.18
	AggregateGenerations                // 1.19
	ProviderInPostReply                 // 1.20
	CandidatesMemberOf                  // 1.21
	ForbiddenTraits                     // 1.22
	ErrorCodes                          // 1.23
	RepeatedMemberOf                    // 1.24
	GranularGroups                      // 1.25
	FullyReserved                       // 1.26
	AllSummaryClasses                   // 1.27
	ConsumerGenerations                 // 1.28
	NestedCandidates                    // 1.29
	ReshaperCall                        // 1.30
	CandidatesInTree                    // 1.31
	ForbiddenAggregates                 // 1.32
	NamedSuffixes                       // 1.33
	Mappings                            // 1.34
	RootRequired                        // 1.35
	SameSubtree                         // 1.36
	Reparenting                         // 1.37
	ConsumerTypes                       // 1.38
	AnyTraits                           // 1.39
	afterNewest
)

// Change is one line of the history of the API.
type Change struct {
	Feature Feature
	What    string
}

// History is the whole history of the API at one glance: the entry at i is what microversion 1.i
// brought.
var History = [afterNewest]Change{
	{Always, "the API as it began: resource providers, inventories, allocations, usages of a provider"},
	{ProviderAggregates, "GET and PUT /resource_providers/{uuid}/aggregates"},
	{ResourceClasses, "/resource_classes: custom classes can be listed, made, renamed and deleted"},
	{MemberOfFilter, "GET /resource_providers?member_of="},
	{ResourcesFilter, "GET /resource_providers?resources="},
	{DeleteInventories, "DELETE /resource_providers/{uuid}/inventories"},
	{Traits, "/traits and /resource_providers/{uuid}/traits"},
	{BodilessClassPut, "PUT /resource_classes/{name} has no body, and makes the class or finds it; no class is " +
		"renamed any more"},
	{ProjectAndUser, "project_id and user_id are required in PUT /allocations/{consumer}"},
	{ProjectUsages, "GET /usages"},
	{AllocationCandidates, "GET /allocation_candidates"},
	{AllocationsLink, "a provider links to its allocations"},
	{AllocationsByUUID, "PUT /allocations/{consumer} takes an object keyed by provider, as GET gives it; GET gives " +
		"project_id and user_id"},
	{PostAllocations, "POST /allocations, for several consumers at once"},
	{NestedProviders, "parent_provider_uuid and root_provider_uuid of a provider; GET /resource_providers?in_tree="},
	{CacheHeaders, "Last-Modified and Cache-Control: no-cache on every answer that has a body"},
	{CandidatesLimit, "GET /allocation_candidates?limit="},
	{CandidatesRequired, "GET /allocation_candidates?required=; traits in the provider summaries"},
	{RequiredFilter, "GET /resource_providers?required="},
	{AggregateGenerations, "the generation of the provider is given and checked in its aggregates"},
	{ProviderInPostReply, "POST /resource_providers answers 200 with the provider, not 201 without a body"},
	{CandidatesMemberOf, "GET /allocation_candidates?member_of="},
	{ForbiddenTraits, "a trait in required= can be forbidden with !"},
	{ErrorCodes, "an error has a code"},
	{RepeatedMemberOf, "member_of can be given more than once"},
	{GranularGroups, "numbered groups in GET /allocation_candidates"},
	{FullyReserved, "all of an inventory can be reserved"},
	{AllSummaryClasses, "provider summaries tell of all classes, not only of those asked for"},
	{ConsumerGenerations,
		"consumer_generation is required when allocations are written, and given when they are read; PUT " +
			"can empty them"},
	{NestedCandidates, "allocation candidates within trees of providers"},
	{ReshaperCall, "POST /reshaper"},
	{CandidatesInTree, "GET /allocation_candidates?in_tree="},
	{ForbiddenAggregates, "an aggregate in member_of can be forbidden with ! and !in:"},
	{NamedSuffixes, "the suffix of a group can be any of [a-zA-Z0-9_-]{1,64}"},
	{Mappings, "allocation requests have mappings, and allocations may be written with them"},
	{RootRequired, "GET /allocation_candidates?root_required="},
	{SameSubtree, "GET /allocation_candidates?same_subtree=; groups without resources"},
	{Reparenting, "a provider can be moved to another parent, or made a root"},
	{ConsumerTypes, "consumer_type is required when allocations are written; GET /usages counts by it"},
	{AnyTraits, "required=in:A,B; required can be given more than once"},
}

// Has says whether the version has the feature.
func (v Version) Has(f Feature) bool { return uint8(v) >= uint8(f) }

// String is the version as it is written in headers: "1.28".
func (v Version) String() string { return versionTexts[v] }

// HeaderValue is the version as the value of HeaderVersion: "placement 1.28".
func (v Version) HeaderValue() string { return versionHeaders[v] }

var versionTexts, versionHeaders = func() (texts, headers [256]string) {
	for i := range texts {
		texts[i] = "1." + strconv.Itoa(i)
		headers[i] = ServiceType + " " + texts[i]
	}
	return texts, headers
}()

// ErrMalformedVersion is wrapped by errors about a version that cannot be parsed (status 400).
var ErrMalformedVersion = errors.New("invalid version string")

// ErrUnacceptableVersion is wrapped by errors about a version that the API does not have (status
// 406).
//
//nolint:staticcheck // The phrase is Placement's; clients know it.
var ErrUnacceptableVersion = errors.New("Unacceptable version header")

// maxVersionHeader bounds what is read of the version headers of one request, in bytes.
const maxVersionHeader = 4096

// RequestVersion finds the microversion that a request asks for in the values of its
// OpenStack-API-Version headers.
//
// A value may name several services, separated by commas; the last one for "placement" counts.
// Without any, the version is MinVersion; "latest" is newest, the last one of the server. The error
// wraps ErrMalformedVersion or ErrUnacceptableVersion.
func RequestVersion(values []string, newest Version) (Version, error) {
	for i := len(values) - 1; i >= 0; i-- {
		value := values[i]
		if len(value) > maxVersionHeader {
			return 0, fmt.Errorf("%w: the header has %d bytes, more than %d",
				ErrMalformedVersion, len(value), maxVersionHeader)
		}
		for value != "" {
			part := value
			comma := strings.LastIndexByte(value, ',')
			if comma >= 0 {
				part, value = value[comma+1:], value[:comma]
			} else {
				value = ""
			}
			part = strings.TrimSpace(part)
			space := strings.IndexAny(part, " \t")
			if space < 0 || !strings.EqualFold(part[:space], ServiceType) {
				continue
			}
			return parseVersion(strings.TrimSpace(part[space:]), newest)
		}
	}
	return MinVersion, nil
}

// ParseVersion reads a version such as "1.28" or "latest". The error wraps ErrMalformedVersion or
// ErrUnacceptableVersion.
func ParseVersion(text string) (Version, error) { return parseVersion(text, MaxVersion) }

func parseVersion(text string, newest Version) (Version, error) {
	if text == "latest" {
		return newest, nil
	}
	majorText, minorText, found := strings.Cut(text, ".")
	major, majorOK := ParseInt(majorText)
	minor, minorOK := ParseInt(minorText)
	if !found || !majorOK || !minorOK {
		return 0, fmt.Errorf("%w: %s; give a version such as 1.39, or latest", ErrMalformedVersion, text)
	}
	if major != 1 || minor < int64(MinVersion) || minor > int64(newest) {
		return 0, fmt.Errorf("%w: %s; the versions from 1.%d to 1.%d are there",
			ErrUnacceptableVersion, text, MinVersion, newest)
	}
	return Version(minor), nil
}

// ParseInt reads a decimal integer as Python's int() does, which Placement uses for versions and
// query parameters: spaces around it, a sign, and single underscores between digits are fine.
// Integers beyond jsonkit.MaxExact are cut off there.
func ParseInt(text string) (n int64, ok bool) {
	text = strings.TrimSpace(text)
	negative := false
	if text != "" && (text[0] == '-' || text[0] == '+') {
		negative = text[0] == '-'
		text = text[1:]
	}
	digit := false
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '_' && digit {
			digit = false
			continue
		}
		if c < '0' || c > '9' {
			return 0, false
		}
		digit = true
		if n = n*10 + int64(c-'0'); n > jsonkit.MaxExact {
			n = jsonkit.MaxExact
		}
	}
	if negative {
		n = -n
	}
	return n, digit
}

// Versions is the version document, GET /.
type Versions struct {
	Versions []VersionRange `json:"versions"`
}

// VersionRange is one major version of the API and the microversions that it has.
type VersionRange struct {
	ID         string `json:"id"`
	MaxVersion string `json:"max_version"`
	MinVersion string `json:"min_version"`
	Status     string `json:"status"`
	Links      []Link `json:"links"`
}

// Link points from a thing to others that belong to it.
type Link struct {
	Rel  string `json:"rel"`
	Href string `json:"href"`
}

// VersionDocument is the version document of this package's microversions. The empty link means
// "where you found this".
func VersionDocument() Versions {
	return Versions{Versions: []VersionRange{{
		ID:         "v" + MinVersion.String(),
		MaxVersion: MaxVersion.String(),
		MinVersion: MinVersion.String(),
		Status:     "CURRENT",
		Links:      []Link{{Rel: "self"}},
	}}}
}
