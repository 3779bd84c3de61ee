// SPDX-License-Identifier: Apache-2.0

package wire

// ServiceType is the name of the service in the version header and in the catalog of Keystone.
const ServiceType = "placement"

// The headers of the API, in the spelling that net/http keeps them under (header names know no
// case).
const (
	HeaderVersion   = "Openstack-Api-Version" // request and response: "placement 1.39"
	HeaderAuthToken = "X-Auth-Token"
	// response: the id of this request; request: that of the caller's own
	HeaderRequestID = "X-Openstack-Request-Id"
	HeaderRoles     = "X-Roles" // request, noauth: roles, separated by commas
	// request: extensions beyond Placement, by name; response: those granted
	HeaderExtensions = "Placement-Extensions"
	// response: the age of what it shows, where that may not be the newest
	HeaderStale         = "Placement-Stale-Seconds"
	VaryVersion         = "openstack-api-version" // value of Vary
	MediaType           = "application/json"      // of all bodies
	CacheControl        = "no-cache"              // value of Cache-Control from 1.15
	ConsumerTypeUnknown = "unknown"               // shown where a consumer has no type
	ConsumerTypeAll     = "all"                   // in GET /usages: all types taken together
	ConsumerCount       = "consumer_count"        // key among the classes in GET /usages from 1.38
	MaxProviderName     = 200                     // characters
	MaxName             = 255                     // characters of a trait, class, project, user or consumer type
)
