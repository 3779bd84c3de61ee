// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/url"
	"slices"
	"strings"
)

// base is what links of this request begin with.
func (x *exchange) base() string { return x.Base(x.service.endpoint) }

// inProject is the segment of the project, for requests that have one in their path.
func (x *exchange) inProject() string {
	if x.pathProject == "" {
		return ""
	}
	return x.pathProject + "/"
}

// selfLink is the URL of something in a collection, as "servers".
func (x *exchange) selfLink(collection, id string) string {
	return x.base() + prefix + x.inProject() + collection + "/" + id
}

// bookmark is the URL of it without the version.
func (x *exchange) bookmark(collection, id string) string {
	return x.base() + "/" + x.inProject() + collection + "/" + id
}

// links are both, as most things have them.
func (x *exchange) links(collection, id string) list {
	return list{
		new(object).add("rel", "self").add("href", x.selfLink(collection, id)),
		new(object).add("rel", "bookmark").add("href", x.bookmark(collection, id)),
	}
}

// bookmarked is a reference to something else: its id and its bookmark.
func (x *exchange) bookmarked(collection, id string) *object {
	return new(object).add("id", id).add("links", list{new(object).add("rel", "bookmark").add("href", x.bookmark(collection, id))})
}

// nextLink is the link to the page after a marker: the same request, with its parameters sorted and
// the last value of each, as Nova has it.
func (x *exchange) nextLink(collection string, q query, marker string) list {
	var names []string
	for name := range q.values {
		if name != "marker" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	at, has := len(names), q.values.Has("marker")
	if has {
		at, _ = slices.BinarySearch(names, "marker")
	}
	var pairs []string
	for _, name := range names {
		pairs = append(pairs, url.QueryEscape(name)+"="+url.QueryEscape(lastOf(q.values[name])))
	}
	pairs = slices.Insert(pairs, at, "marker="+url.QueryEscape(marker))
	href := x.base() + prefix + x.inProject() + collection + "?" + strings.Join(pairs, "&")
	return list{new(object).add("rel", "next").add("href", href)}
}

// lastOf is the last of some values, "" without any.
func lastOf(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}
