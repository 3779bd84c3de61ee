// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/url"
	"slices"
	"strings"
)

// LinkBase is what links of this request begin with.
func (x *Exchange) LinkBase() string { return x.Base(x.Service.Endpoint) }

// inProject is the segment of the project, for requests that have one in their path.
func (x *Exchange) inProject() string {
	if x.pathProject == "" {
		return ""
	}
	return x.pathProject + "/"
}

// SelfLink is the URL of something in a collection, as "servers".
func (x *Exchange) SelfLink(collection, id string) string {
	return x.LinkBase() + Prefix + x.inProject() + collection + "/" + id
}

// bookmark is the URL of it without the version.
func (x *Exchange) bookmark(collection, id string) string {
	return x.LinkBase() + "/" + x.inProject() + collection + "/" + id
}

// Links are both, as most things have them.
func (x *Exchange) Links(collection, id string) List {
	return List{
		new(Object).Add("rel", "self").Add("href", x.SelfLink(collection, id)),
		new(Object).Add("rel", "bookmark").Add("href", x.bookmark(collection, id)),
	}
}

// Bookmarked is a reference to something else: its id and its bookmark.
func (x *Exchange) Bookmarked(collection, id string) *Object {
	return new(Object).Add("id", id).
		Add("links", List{new(Object).Add("rel", "bookmark").Add("href", x.bookmark(collection, id))})
}

// NextLink is the link to the page after a marker: the same request, with its parameters sorted and
// the last value of each, as Nova has it.
func (x *Exchange) NextLink(collection string, q Query, marker string) List {
	var names []string
	for name := range q.Values {
		if name != "marker" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	at, has := len(names), q.Values.Has("marker")
	if has {
		at, _ = slices.BinarySearch(names, "marker")
	}
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, url.QueryEscape(name)+"="+url.QueryEscape(lastOf(q.Values[name])))
	}
	pairs = slices.Insert(pairs, at, "marker="+url.QueryEscape(marker))
	href := x.LinkBase() + Prefix + x.inProject() + collection + "?" + strings.Join(pairs, "&")
	return List{new(Object).Add("rel", "next").Add("href", href)}
}

// lastOf is the last of some values, "" without any.
func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
