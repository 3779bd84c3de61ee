// SPDX-License-Identifier: Apache-2.0

package compute

import "net/http"

// versionRoutes are the version documents, which clients read before they have a token. They are
// documents whatever the method, as with Nova.
func (a *API) versionRoutes() []route {
	return []route{
		{method: "GET", path: "/", handle: a.listVersions, open: true, unversioned: true, about: &aboutListVersions},
		{method: "POST", path: "/", handle: a.listVersions, open: true, unversioned: true},
		{method: "GET", path: "/v2.1", handle: a.showVersion, open: true},
		{method: "POST", path: "/v2.1", handle: a.showVersion, open: true},
		{method: "GET", path: "/v2.1/", handle: a.showVersion, open: true, about: &aboutShowVersion},
		{method: "POST", path: "/v2.1/", handle: a.showVersion, open: true},
		{method: "GET", path: otherPath, handle: a.offerVersions, open: true, unversioned: true},
		{method: "POST", path: otherPath, handle: a.offerVersions, open: true, unversioned: true},
		{method: "PUT", path: otherPath, handle: a.offerVersions, open: true, unversioned: true},
		{method: "PATCH", path: otherPath, handle: a.offerVersions, open: true, unversioned: true},
		{method: "DELETE", path: otherPath, handle: a.offerVersions, open: true, unversioned: true},
	}
}

// The only version is v2.1. Nova has v2.0 as well, which is v2.1 without microversions and without
// checks of what is sent.
const (
	versionID      = "v2.1"
	versionUpdated = "2013-07-23T11:33:21Z"
)

// listVersions answers GET /.
func (a *API) listVersions(x *exchange) error {
	version := new(object).add("id", versionID).add("status", "CURRENT").
		add("version", MaxVersion.String()).add("min_version", MinVersion.String()).add("updated", versionUpdated).
		add("links", list{new(object).add("rel", "self").add("href", x.base()+prefix)})
	return x.json(http.StatusOK, new(object).add("versions", list{version}))
}

// showVersion answers GET /v2.1, with or without a slash.
func (a *API) showVersion(x *exchange) error {
	links := list{
		new(object).add("rel", "self").add("href", x.base()+prefix),
		new(object).add("rel", "describedby").add("type", "text/html").add("href", "http://docs.openstack.org/"),
	}
	version := new(object).add("id", versionID).add("status", "CURRENT").
		add("version", MaxVersion.String()).add("min_version", MinVersion.String()).add("updated", versionUpdated).
		add("links", links).add("media-types", mediaTypes())
	return x.json(http.StatusOK, new(object).add("version", version))
}

// offerVersions answers 300 for paths that begin with no version.
func (a *API) offerVersions(x *exchange) error {
	choice := new(object).add("id", versionID).add("status", "CURRENT").
		add("links", list{new(object).add("rel", "self").add("href", x.base()+"/v2.1"+x.R.URL.EscapedPath())}).
		add("media-types", mediaTypes())
	return x.json(http.StatusMultipleChoices, new(object).add("choices", list{choice}))
}

func mediaTypes() list {
	return list{new(object).add("base", "application/json").add("type", "application/vnd.openstack.compute+json;version=2.1")}
}
