// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"cmp"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// createServers answers POST /servers: 202 as soon as the API database has what was asked for; the
// scheduler does the rest. The order of the checks is Nova's. Cost: the flavor, what [Scheduler]
// Create costs, and one question to all cells if a zone other than the default one is asked for.
func (d *Deps) createServers(x *api.Exchange) error {
	body := readCreate(x.Asked)
	if body.Min > body.Max {
		return osapi.BadRequest("min_count must be <= max_count")
	}
	if body.Max > scheduler.MaxServers {
		return osapi.BadRequest("max_count must be at most %d", scheduler.MaxServers)
	}
	if err := x.AllowOwn(ruleServersCreate); err != nil {
		return err
	}
	if err := rejectUnsupported(x, body); err != nil {
		return err
	}
	request := scheduler.CreateRequest{Min: body.Min, Max: body.Max}
	request.RequestID, request.Traceparent = x.ID, tracing.Traceparent(x.Context())
	if err := d.requestedZone(x, body.Zone, &request.RequestSpec); err != nil {
		return err
	}
	// An empty imageRef means an empty disk; Nova's clients send it to boot from a volume. A
	// missing one is an error.
	if body.Image == nil {
		return osapi.BadRequest("Missing imageRef attribute")
	}
	// Before 2.37, a body without networks means none in a cloud that has no networks.
	switch {
	case body.NoNetworks:
	case x.AtLeast(vNetworksRequired):
		return osapi.BadRequest(`networks: this service has no networks; send "networks": "none".`)
	default:
		return osapi.BadRequest("networks: this service has no networks; leave them out.")
	}
	if err := d.requestedHints(x, body.Hints, &request.RequestSpec); err != nil {
		return err
	}
	flavor, err := d.requestedFlavor(x, body.Flavor)
	if err != nil {
		return err
	}
	metadata, err := d.requestedMetadata(x, body.Metadata)
	if err != nil {
		return err
	}
	key, err := d.requestedKey(x, body.KeyName)
	if err != nil {
		return err
	}
	request.Server = cellwire.Server{
		ProjectID: x.Caller.Project, UserID: x.Caller.User,
		Name: body.Name, Hostname: hostName(body.Name), Description: new(body.Name), ImageRef: *body.Image,
		Flavor: flavor, Zone: request.Zone, Metadata: metadata, Tags: body.Tags, UserData: body.UserData,
		KeyName: key.Name, KeyData: key.PublicKey, ConfigDrive: body.ConfigDrive,
		DiskConfig: cmp.Or(body.DiskConfig, "MANUAL"), AccessIPv4: body.AccessIPv4, AccessIPv6: body.AccessIPv6,
		Reservation: "r-" + randomLetters(8),
	}
	if x.AtLeast(api.VDescription) {
		request.Description = body.Description
	}
	request.AllowCellDown = x.Allows(ruleCreateCellDown, x.Caller.Project)
	made, err := d.Scheduler.Create(x.Context(), request)
	if err != nil {
		return createFault(err)
	}
	d.Tenant.LogUnread(x, &flavor)
	return accepted(x, body, &made[0].Server)
}

// defaultSecurityGroup is the name of the security group that each server is shown with. The group
// filters nothing, because servers have no networks.
const defaultSecurityGroup = "default"

// rejectUnsupported refuses what this service has not, and would have to leave out silently: a
// server that is not what was asked for is worse than none. What is empty asks for nothing.
func rejectUnsupported(x *api.Exchange, body *createBody) error {
	for _, hints := range body.Hints {
		if len(hints.Others) > 0 {
			return osapi.BadRequest(
				"%s: this service does not have %s. The hints that it has are group, same_host and different_host.",
				hints.Member, osapi.Shortened(strings.Join(hints.Others, ", ")))
		}
	}
	switch {
	case body.Devices != "":
		return osapi.BadRequest("%s: this service has no volumes; servers boot from the image of imageRef.",
			body.Devices)
	case body.Files:
		return osapi.BadRequest("personality: this service does not inject files; send user_data instead.")
	case body.Certificates:
		return osapi.BadRequest("trusted_image_certificates: this service does not validate the signatures of images.")
	}
	for _, name := range body.SecurityGroups {
		if name != "" && name != defaultSecurityGroup {
			return osapi.BadRequest("Security group %s not found for project %s.",
				osapi.Shortened(name), x.Caller.Project)
		}
	}
	return nil
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

// mostHinted is how many servers a hint names at most.
const mostHinted = 100

// requestedHints puts the scheduler hints of a request into the specification of its servers.
func (d *Deps) requestedHints(x *api.Exchange, all []hintsBody, spec *apidb.RequestSpec) (err error) {
	if len(all) == 0 {
		return nil
	}
	hints := &all[0]
	if hints.Group != "" {
		g, err := d.Tenant.ServerGroup(x, hints.Group)
		if refusal := (*osapi.Error)(nil); errors.As(err, &refusal) && refusal.Status == http.StatusNotFound {
			err = osapi.BadRequest("Instance group %s could not be found.", hints.Group)
		}
		if err != nil {
			return err
		}
		spec.Group = g.UUID
	}
	if spec.SameHost, err = d.visibleServers(x, "same_host", hints.SameHost); err != nil {
		return err
	}
	spec.DifferentHost, err = d.visibleServers(x, "different_host", hints.DifferentHost)
	return err
}

// visibleServers are the uuids of the servers that a hint names. Nova takes any uuid; here the
// caller has to see the servers, so that a hint tells nothing of those of others, and one that
// cannot be followed is not left out.
func (d *Deps) visibleServers(x *api.Exchange, hint string, named []string) ([]string, error) {
	switch {
	case len(named) == 0:
		return nil, nil
	case len(named) > mostHinted:
		return nil, osapi.BadRequest("os:scheduler_hints: %s names more than %d servers.", hint, mostHinted)
	}
	missing := func(uuid string) error {
		return osapi.BadRequest("os:scheduler_hints: the server %s of %s could not be found.",
			osapi.Shortened(uuid), hint)
	}
	uuids := make([]string, len(named))
	for i, name := range named {
		if uuids[i] = strings.ToLower(name); !serverview.IsUUID(uuids[i]) {
			return nil, missing(uuids[i])
		}
	}
	found, err := d.Store.MappingsOf(x.Context(), uuids)
	if err != nil {
		return nil, err
	}
	for _, uuid := range uuids {
		if m, is := found[uuid]; !is || m.Queued() || m.ProjectID != x.Caller.Project && !x.IsAdmin() {
			return nil, missing(uuid)
		}
	}
	return uuids, nil
}

// requestedFlavor is the flavor that is named, by its id or by its URL.
func (d *Deps) requestedFlavor(x *api.Exchange, ref string) (cellwire.Flavor, error) {
	id, _, _ := strings.Cut(ref, "#")
	id, _, _ = strings.Cut(id, "?")
	id = id[strings.LastIndex(id, "/")+1:]
	f, err := d.Tenant.Flavor(x, id)
	switch {
	case errors.Is(err, apidb.ErrNotFound) || err == nil && f.Disabled:
		return cellwire.Flavor{}, osapi.BadRequest("Flavor %s could not be found.", osapi.Shortened(id))
	case err != nil:
		return cellwire.Flavor{}, err
	case f.RootGB == 0 && !x.Allows(ruleCreateZeroDisk, x.Caller.Project):
		return cellwire.Flavor{}, api.Forbidden("Only volume-backed servers are allowed for flavors with zero disk.")
	}
	return f.Flavor, nil
}

// requestedMetadata are the metadata, within the quota for them.
func (d *Deps) requestedMetadata(x *api.Exchange, asked map[string]string) (map[string]string, error) {
	if len(asked) == 0 {
		return map[string]string{}, nil
	}
	most, err := d.Tenant.MetadataLimit(x.Context(), x.Caller.Project)
	if err != nil {
		return nil, err
	}
	if most >= 0 && int64(len(asked)) > most {
		return nil, api.Forbidden("Maximum number of metadata items exceeds %d", most)
	}
	return asked, nil
}

// requestedKey is the key pair of the caller with a name, the zero one for none.
func (d *Deps) requestedKey(x *api.Exchange, name string) (apidb.KeyPair, error) {
	if name == "" {
		return apidb.KeyPair{}, nil
	}
	k, err := d.Store.KeyPair(x.Context(), x.Caller.User, name)
	if errors.Is(err, apidb.ErrNotFound) {
		return k, osapi.BadRequest("Invalid key_name provided.")
	}
	return k, err
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
