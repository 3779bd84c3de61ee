// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
)

// versionRoutes are the version documents, which clients read before they have a token. They are
// documents whatever the method, as with Nova.
func (a *API) versionRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/", Handle: a.listVersions, Open: true, Unversioned: true},
		{Method: "POST", Path: "/", Handle: a.listVersions, Open: true, Unversioned: true},
		{Method: "GET", Path: "/v2.1", Handle: a.showVersion, Open: true},
		{Method: "POST", Path: "/v2.1", Handle: a.showVersion, Open: true},
		{Method: "GET", Path: "/v2.1/", Handle: a.showVersion, Open: true},
		{Method: "POST", Path: "/v2.1/", Handle: a.showVersion, Open: true},
		{Method: "GET", Path: api.OtherPath, Handle: a.offerVersions, Open: true, Unversioned: true},
		{Method: "POST", Path: api.OtherPath, Handle: a.offerVersions, Open: true, Unversioned: true},
		{Method: "PUT", Path: api.OtherPath, Handle: a.offerVersions, Open: true, Unversioned: true},
		{Method: "PATCH", Path: api.OtherPath, Handle: a.offerVersions, Open: true, Unversioned: true},
		{Method: "DELETE", Path: api.OtherPath, Handle: a.offerVersions, Open: true, Unversioned: true},
	}
}

// The only version is v2.1. Nova has v2.0 as well, which is v2.1 without microversions and without
// checks of what is sent.
const (
	versionID      = "v2.1"
	versionUpdated = "2013-07-23T11:33:21Z"
)

// listVersions answers GET /.
func (a *API) listVersions(x *api.Exchange) error {
	version := new(api.Object).Add("id", versionID).Add("status", "CURRENT").
		Add("version", api.MaxVersion.String()).Add("min_version", api.MinVersion.String()).
		Add("updated", versionUpdated).
		Add("links", api.List{new(api.Object).Add("rel", "self").Add("href", x.LinkBase()+api.Prefix)})
	return x.JSON(http.StatusOK, new(api.Object).Add("versions", api.List{version}))
}

// showVersion answers GET /v2.1, with or without a slash.
func (a *API) showVersion(x *api.Exchange) error {
	links := api.List{
		new(api.Object).Add("rel", "self").Add("href", x.LinkBase()+api.Prefix),
		new(api.Object).Add("rel", "describedby").Add("type", "text/html").Add("href", "http://docs.openstack.org/"),
	}
	version := new(api.Object).Add("id", versionID).Add("status", "CURRENT").
		Add("version", api.MaxVersion.String()).Add("min_version", api.MinVersion.String()).
		Add("updated", versionUpdated).
		Add("links", links).Add("media-types", mediaTypes())
	return x.JSON(http.StatusOK, new(api.Object).Add("version", version))
}

// offerVersions answers 300 for paths that begin with no version.
func (a *API) offerVersions(x *api.Exchange) error {
	choice := new(api.Object).Add("id", versionID).Add("status", "CURRENT").
		Add("links", api.List{new(api.Object).Add("rel", "self").
			Add("href", x.LinkBase()+"/v2.1"+x.R.URL.EscapedPath())}).
		Add("media-types", mediaTypes())
	return x.JSON(http.StatusMultipleChoices, new(api.Object).Add("choices", api.List{choice}))
}

func mediaTypes() api.List {
	return api.List{new(api.Object).Add("base", "application/json").
		Add("type", "application/vnd.openstack.compute+json;version=2.1")}
}
