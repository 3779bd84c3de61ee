// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// defaultSecurityGroup is that of all servers, in name: there is nothing that it could filter.
const defaultSecurityGroup = "default"

// knownHints are the scheduler hints that this service has.
var knownHints = []string{"group", "same_host", "different_host"}

// rejectUnsupported refuses what this service has not, and would have to leave out silently: a
// server that is not what was asked for is worse than none. What is empty asks for nothing.
func rejectUnsupported(x *api.Exchange, body, asked *jsonkit.Object) error {
	for _, name := range []string{hintsMember, hintsMemberLong} {
		if hints := api.MemberObject(body, name); hints != nil {
			others := slices.DeleteFunc(slices.Clone(hints.Names()),
				func(hint string) bool { return slices.Contains(knownHints, hint) })
			if len(others) > 0 {
				return osapi.BadRequest(
					"%s: this service does not have %s. The hints that it has are group, same_host and different_host.",
					name, osapi.Shortened(strings.Join(others, ", ")))
			}
		}
	}
	for _, name := range []string{"block_device_mapping", "block_device_mapping_v2"} {
		if len(api.MemberList(asked, name)) > 0 {
			return osapi.BadRequest("%s: this service has no volumes; servers boot from the image of imageRef.", name)
		}
	}
	switch {
	case len(api.MemberList(asked, "personality")) > 0:
		return osapi.BadRequest("personality: this service does not inject files; send user_data instead.")
	case len(api.MemberList(asked, "trusted_image_certificates")) > 0:
		return osapi.BadRequest("trusted_image_certificates: this service does not validate the signatures of images.")
	}
	for _, group := range api.MemberList(asked, "security_groups") {
		if name := api.MemberString(group.(*jsonkit.Object), "name"); name != "" && name != defaultSecurityGroup {
			return osapi.BadRequest("Security group %s not found for project %s.", osapi.Shortened(name), x.Who.Project)
		}
	}
	return nil
}

// checkNetworks refuses all networks but none. Before 2.37 leaving them out asks for none where
// there are none.
func checkNetworks(x *api.Exchange, asked *jsonkit.Object) error {
	networks, has := asked.Get("networks")
	some, _ := networks.([]any)
	switch {
	case !has, networks == "none", some != nil && len(some) == 0:
		return nil
	case x.Since(vNetworksRequired):
		return osapi.BadRequest(`networks: this service has no networks; send "networks": "none".`)
	}
	return osapi.BadRequest("networks: this service has no networks; leave them out.")
}

// requestedFlavor is the flavor that flavorRef names, by its id or by its URL.
func (d *Deps) requestedFlavor(x *api.Exchange, asked *jsonkit.Object) (cellwire.Flavor, error) {
	ref, _ := asked.Get("flavorRef")
	id, _, _ := strings.Cut(jsonkit.PythonStr(ref), "#")
	id, _, _ = strings.Cut(id, "?")
	id = id[strings.LastIndex(id, "/")+1:]
	f, err := d.Tenant.Flavor(x, id)
	switch {
	case errors.Is(err, apidb.ErrNotFound) || err == nil && f.Disabled:
		return cellwire.Flavor{}, osapi.BadRequest("Flavor %s could not be found.", osapi.Shortened(id))
	case err != nil:
		return cellwire.Flavor{}, err
	case f.RootGB == 0 && !x.May(ruleCreateZeroDisk, x.Who.Project):
		return cellwire.Flavor{}, api.Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")
	}
	return f.Flavor, nil
}

// requestedMetadata are the metadata, within the quota for them.
func (d *Deps) requestedMetadata(x *api.Exchange, asked *jsonkit.Object) (map[string]string, error) {
	given := api.MemberObject(asked, "metadata")
	if given == nil || len(given.Names()) == 0 {
		return map[string]string{}, nil
	}
	most, err := d.Tenant.MetadataLimit(x.Context(), x.Who.Project)
	if err != nil {
		return nil, err
	}
	if most >= 0 && int64(len(given.Names())) > most {
		return nil, api.Forbidden("Maximum number of metadata items exceeds %d", most)
	}
	metadata := make(map[string]string, len(given.Names()))
	for _, name := range given.Names() {
		metadata[name] = api.MemberString(given, name)
	}
	return metadata, nil
}

// requestedTags are the tags, each once.
func requestedTags(asked *jsonkit.Object) []string {
	var tags []string
	for _, tag := range api.MemberList(asked, "tags") {
		if tag := jsonkit.PythonStr(tag); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// requestedAddress is an address in its canonical form.
func requestedAddress(asked *jsonkit.Object, name string) string {
	address, err := netip.ParseAddr(api.MemberString(asked, name))
	if err != nil {
		return "" // none: the schema refuses others
	}
	return address.String()
}

// requestedZone reads ZONE, ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE: the requested zone (without
// one, that of the configuration), and the host and node that an administrator forces. As in Nova a
// zone does not count beside a forced host, unless it is the default one, and without a host it has
// to be the zone of an enabled service of a cell that is up.
func (d *Deps) requestedZone(x *api.Exchange, text string, into *apidb.RequestSpec) error {
	parts := strings.Split(text, ":")
	into.Zone = parts[0]
	switch len(parts) {
	case 1:
	case 2:
		into.ForcedHost = parts[1]
	case 3:
		into.ForcedHost, into.ForcedNode = parts[1], parts[2]
	default:
		return osapi.BadRequest("Invalid input received: Unable to parse availability_zone")
	}
	if into.Zone == "" {
		into.Zone = d.ScheduleZone
	}
	if into.ForcedHost != "" || into.ForcedNode != "" {
		if err := x.AllowOwn(ruleCreateForcedHost); err != nil {
			return err
		}
		if into.Zone != d.DefaultZone {
			into.Zone = ""
		}
		return nil
	}
	if into.Zone == "" || into.Zone == d.DefaultZone {
		return nil
	}
	known, err := d.Hosts.Zones(x.Context())
	if err != nil {
		return err
	}
	if !slices.Contains(known, into.Zone) {
		return osapi.BadRequest("The requested availability zone is not available")
	}
	return nil
}

var (
	hostNameDashes  = regexp.MustCompile(`[ _.]`)
	hostNameOthers  = regexp.MustCompile(`[^\p{L}\p{N}_.-]+`)
	hostNameLongest = 63
)

// hostName makes a host name of a server's name, as Nova does; "" if nothing is left of it: the
// scheduler, which makes the uuid, then makes one of that.
func hostName(name string) string {
	latin := []rune(strings.Map(func(r rune) rune {
		if r > 0xff {
			return -1
		}
		return r
	}, name))
	latin = latin[:min(len(latin), hostNameLongest)]
	s := hostNameDashes.ReplaceAllString(string(latin), "-")
	s = strings.ToLower(hostNameOthers.ReplaceAllString(s, ""))
	return strings.Trim(s, ".-")
}

// requestedKey is the key pair of the caller that key_name names, the zero one for none.
func (d *Deps) requestedKey(x *api.Exchange, asked *jsonkit.Object) (apidb.KeyPair, error) {
	name := api.MemberString(asked, "key_name")
	if name == "" {
		return apidb.KeyPair{}, nil
	}
	k, err := d.Store.KeyPair(x.Context(), x.Who.User, name)
	if errors.Is(err, apidb.ErrNotFound) {
		return k, osapi.BadRequest("Invalid key_name provided.")
	}
	return k, err
}
