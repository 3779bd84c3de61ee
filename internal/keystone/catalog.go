// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// wanted is which endpoint to take from a catalog.
type wanted struct {
	service    string
	key        func(setting string) string // what the configuration file calls it
	region     string
	interfaces []string
}

// choose finds the service's endpoint in a catalog: of the wanted region, and of the first
// interface that has one. Where that leaves a choice, it takes none: to report to the wrong service
// is worse than to report to none.
//
// Errors: an [Error] of kind [ErrCatalog] with what was found and what to do.
func (w wanted) choose(catalog []tokens.CatalogEntry) (string, error) {
	var all []tokens.Endpoint
	var services []string
	found := false
	for _, s := range catalog {
		services = append(services, s.Type)
		if s.Type == w.service {
			found = true
			all = append(all, s.Endpoints...)
		}
	}
	switch {
	case len(catalog) == 0:
		return "", w.refuse("it is empty", "give the user's project its endpoints, or set "+w.key("url"))
	case !found:
		return "", w.refuse("it has "+listed(services)+", and no service of type "+w.service,
			fmt.Sprintf(
				"register it (openstack service create --name %s %[1]s, openstack endpoint create ...), or set %[2]s",
				w.service, w.key("url")))
	case len(all) == 0:
		return "", w.refuse("the service "+w.service+" has no endpoints",
			"create them (openstack endpoint create ...), or set "+w.key("url"))
	}
	here := slices.DeleteFunc(slices.Clone(all),
		func(e tokens.Endpoint) bool { return w.region != "" && regionOf(e) != w.region })
	if len(here) == 0 {
		return "", w.refuse(fmt.Sprintf("region %q has none; there are endpoints in %s",
			w.region, listed(each(all, regionOf))),
			"set "+w.key("region_name")+" to one of them")
	}
	for _, i := range w.interfaces {
		of := slices.DeleteFunc(slices.Clone(here), func(e tokens.Endpoint) bool { return e.Interface != i })
		if len(of) > 0 {
			return w.onlyAddress(i, of)
		}
	}
	return "", w.refuse(fmt.Sprintf("there is none of the interfaces %s; there are %s", listed(w.interfaces),
		listed(each(here, func(e tokens.Endpoint) string { return e.Interface }))),
		"set "+w.key("valid_interfaces")+", or create the endpoint")
}

// onlyAddress returns the address of the endpoints of an interface, or an error if they have
// several.
func (w wanted) onlyAddress(of string, endpoints []tokens.Endpoint) (string, error) {
	if regions := slices.Compact(slices.Sorted(slices.Values(each(endpoints, regionOf)))); len(regions) > 1 {
		return "", w.refuse(fmt.Sprintf("there are %s endpoints in several regions: %s", of, listed(regions)),
			"set "+w.key("region_name")+" to this host's")
	}
	address := ""
	for _, e := range endpoints {
		clean, err := w.cleanAddress(e)
		switch {
		case err != nil:
			return "", err
		case address != "" && clean != address:
			return "", w.refuse(fmt.Sprintf("there are two %s endpoints in region %q: %s and %s",
				of, regionOf(e), address, clean),
				"delete the wrong one (look at openstack endpoint list --service "+w.service+"), or set "+w.key("url"))
		}
		address = clean
	}
	return address, nil
}

var versionSuffix = regexp.MustCompile(`^v\d+(\.\d+)?$`)

// cleanAddress is the address of an endpoint without slashes at its end, if it can be the
// service's.
func (w wanted) cleanAddress(e tokens.Endpoint) (string, error) {
	name := fmt.Sprintf("the %s endpoint %s", e.Interface, e.ID)
	fix := fmt.Sprintf("fix it (openstack endpoint set --url http://HOST:PORT/PATH %s), or set %s", e.ID, w.key("url"))
	u, err := url.Parse(strings.TrimSpace(e.URL))
	if err == nil && u.User != nil {
		return "", w.refuse(name+" has a user name or password in its URL, which would be logged", fix)
	}
	switch {
	case strings.TrimSpace(e.URL) == "":
		return "", w.refuse(name+" has no URL", fix)
	case strings.Contains(e.URL, "%(") || strings.Contains(e.URL, "$("):
		return "", w.refuse(fmt.Sprintf("%s has the URL %.200q, with a placeholder that is not filled in", name, e.URL),
			fix)
	case err != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "", w.refuse(fmt.Sprintf("%s has the URL %.200q, which is neither http nor https to a host",
			name, e.URL), fix)
	case u.RawQuery != "" || u.Fragment != "":
		return "", w.refuse(fmt.Sprintf("%s has the URL %.200q, with more than a path behind the host", name, e.URL),
			fix)
	}
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), ""
	if last := u.Path[strings.LastIndex(u.Path, "/")+1:]; versionSuffix.MatchString(last) {
		return "", w.refuse(
			fmt.Sprintf("%s has the URL %.200q, with the version %s at its end, which must not be there",
				name, e.URL, last), fix)
	}
	return u.String(), nil
}

func (w wanted) refuse(detail, hint string) error {
	return &Error{Kind: ErrCatalog, Detail: detail, Hint: hint}
}

func regionOf(e tokens.Endpoint) string {
	if e.RegionID != "" {
		return e.RegionID
	}
	return e.Region
}

func each(endpoints []tokens.Endpoint, of func(tokens.Endpoint) string) []string {
	out := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		out = append(out, of(e))
	}
	return out
}

// listed names some words, each once, in order; many are counted, and long ones cut.
func listed(words []string) string {
	const most, longest = 12, 60
	words = slices.Compact(slices.Sorted(slices.Values(words)))
	rest := ""
	if len(words) > most {
		rest = fmt.Sprintf(" and %d more", len(words)-most)
		words = words[:most]
	}
	shown := make([]string, 0, len(words))
	for _, w := range words {
		if r := []rune(w); len(r) > longest {
			w = string(r[:longest]) + "..."
		}
		shown = append(shown, fmt.Sprintf("%q", w))
	}
	return strings.Join(shown, ", ") + rest
}
