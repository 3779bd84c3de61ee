// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"net/netip"
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// createBody is what a body of POST /servers asks for. A text that was not sent is "".
type createBody struct {
	Name                   string
	Image                  *string // an id, or "" for an empty disk; nil: it was not sent
	Flavor                 string  // an id, or a URL that ends with one
	Password               string
	Metadata               map[string]string
	NoNetworks             bool // none was sent, or nothing
	DiskConfig             string
	AccessIPv4, AccessIPv6 string // canonical
	Zone                   string // ZONE:HOST:NODE, of which parts can be left out
	ConfigDrive            bool
	KeyName                string
	Min, Max               int64 // how many servers: 1 and Min, if they were not sent
	Reservation            bool  // the answer is to have the reservation
	SecurityGroups         []string
	UserData               string   // in base64
	Description            *string  // from 2.19 on
	Tags                   []string // from 2.52 on, each once

	Hints []hintsBody // for each of the names of hints that was sent; those of the first count

	// What this service has not: the name of the member with block devices, and whether files and
	// certificates were sent.
	Devices             string
	Files, Certificates bool
}

// hintsBody are scheduler hints, and the name of the member that they are in.
type hintsBody struct {
	Member                  string
	Group                   string
	SameHost, DifferentHost []string
	Others                  []string // names of hints that this service does not have
}

// readCreate reads a body that fits [createSchemas].
func readCreate(body *js.Object) *createBody {
	o := api.MemberObject(body, "server")
	flavor, _ := o.Get("flavorRef")
	b := &createBody{
		Name: api.MemberString(o, "name"), Image: api.MemberText(o, "imageRef"), Flavor: js.PythonStr(flavor),
		Password: api.MemberString(o, "adminPass"), Metadata: memberTexts(o, "metadata"),
		DiskConfig: api.MemberString(o, "OS-DCF:diskConfig"),
		AccessIPv4: requestedAddress(o, "accessIPv4"), AccessIPv6: requestedAddress(o, "accessIPv6"),
		Zone:        api.MemberString(o, "availability_zone"),
		ConfigDrive: api.MemberBool(o, "config_drive", false),
		KeyName:     api.MemberString(o, "key_name"), Min: api.MemberInt(o, "min_count", 1),
		Reservation: api.MemberBool(o, "return_reservation_id", false),
		UserData:    api.MemberString(o, "user_data"), Description: api.MemberText(o, "description"),
		Tags:  requestedTags(o),
		Files: len(api.MemberList(o, "personality")) > 0, Certificates: len(api.MemberList(o, certificates)) > 0,
	}
	b.Max = api.MemberInt(o, "max_count", b.Min)
	networks, sent := o.Get("networks")
	some, list := networks.([]any)
	b.NoNetworks = !sent || networks == "none" || list && len(some) == 0
	for _, name := range []string{"block_device_mapping", "block_device_mapping_v2"} {
		if b.Devices == "" && len(api.MemberList(o, name)) > 0 {
			b.Devices = name
		}
	}
	for _, group := range api.MemberList(o, "security_groups") {
		b.SecurityGroups = append(b.SecurityGroups, api.MemberString(group.(*js.Object), "name"))
	}
	for _, name := range []string{hintsMember, hintsMemberLong} {
		if hints := api.MemberObject(body, name); hints != nil {
			b.Hints = append(b.Hints, readHints(name, hints))
		}
	}
	return b
}

func readHints(member string, o *js.Object) hintsBody {
	h := hintsBody{Member: member, Group: api.MemberString(o, "group"),
		SameHost: hintedServers(o, "same_host"), DifferentHost: hintedServers(o, "different_host")}
	for _, name := range o.Names() {
		if name != "group" && name != "same_host" && name != "different_host" {
			h.Others = append(h.Others, name)
		}
	}
	return h
}

// hintedServers returns the uuids in a scheduler hint, whose value is a uuid or a list of uuids.
func hintedServers(o *js.Object, hint string) (uuids []string) {
	if one := api.MemberText(o, hint); one != nil {
		return []string{*one}
	}
	for _, item := range api.MemberList(o, hint) {
		uuids = append(uuids, js.PythonStr(item))
	}
	return uuids
}

// requestedTags are the tags, each once.
func requestedTags(o *js.Object) []string {
	var tags []string
	for _, tag := range api.MemberList(o, "tags") {
		if tag := js.PythonStr(tag); !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// requestedAddress is an address in its canonical form.
func requestedAddress(o *js.Object, name string) string {
	address, err := netip.ParseAddr(api.MemberString(o, name))
	if err != nil {
		return "" // none: the schema refuses others
	}
	return address.String()
}

// memberTexts is a member that is an object of strings; nil without one.
func memberTexts(o *js.Object, name string) map[string]string {
	inner := api.MemberObject(o, name)
	if inner == nil {
		return nil
	}
	texts := make(map[string]string, len(inner.Names()))
	for _, key := range inner.Names() {
		texts[key] = api.MemberString(inner, key)
	}
	return texts
}

// createSchemas are the bodies of POST /servers.
var createSchemas = createFields.Steps(func(v api.Version, members js.Properties) js.Schema {
	required := []string{"name", "flavorRef"}
	if v >= vNetworksRequired {
		required = append(required, "networks")
	}
	return js.ClosedObject(js.Properties{
		{Name: "server", Schema: js.ClosedObject(members, required...)},
		{Name: hintsMember, Schema: hints},
		{Name: hintsMemberLong, Schema: hints},
	}, "server")
})

// createFields are the members of the "server" of POST /servers, including those that this service
// does not support: what Nova's schema refuses is refused with Nova's text, and the handler refuses
// the rest of them.
var createFields = api.Fields{
	{Name: "name", Schema: api.SchemaName.Described(
		"Printable characters, with no space at the beginning and the end. With max_count, servers have a " +
			"number behind it.")},
	{Name: "imageRef", Schema: js.Schema{
		js.AnyOf(api.SchemaUUID, js.Schema{js.Type("string"), js.MaxLength(0)})}.Described(
		"The id of an image: a file that the hosts have. Empty, the disk is empty. Required.")},
	{Name: "flavorRef", Schema: js.Schema{js.Type("string", "integer"), js.MinLength(1)}.Described(
		"The id of a flavor, or its URL.")},
	{Name: "adminPass", Schema: api.SchemaText.Described("For the answer only: it is not set in the guest.")},
	{Name: "metadata", Schema: api.SchemaMetadata},
	{Name: "networks", Until: 31, Schema: noNetworks(listOf(network))},
	{Name: "networks", Since: 32, Until: vNetworksRequired - 1,
		Schema: noNetworks(listOf(network.With("tag", api.SchemaTag)))},
	{Name: "networks", Since: vNetworksRequired, Until: 41,
		Schema: noNetworks(networksOr(network.With("uuid", api.SchemaUUID)))},
	{Name: "networks", Since: 42,
		Schema: noNetworks(networksOr(network.With("uuid", api.SchemaUUID).With("tag", api.SchemaTag)))},
	{Name: "OS-DCF:diskConfig", Schema: api.SchemaDiskConfig.Described("It has no effect.")},
	{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
	{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
	{Name: "personality", Until: api.VNoInjectedFiles - 1, Schema: noVolumes(schemaPersonality)},
	{Name: "availability_zone", Schema: api.SchemaName.Described(
		"Without it, that of the configuration or any. Administrators can name a host: ZONE:HOST, " +
			"ZONE:HOST:NODE or ZONE::NODE.")},
	{Name: "block_device_mapping", Schema: noVolumes(listOf(legacyDevice))},
	// Tags of devices were in 2.32 only, by mistake, and came back with 2.42.
	{Name: "block_device_mapping_v2", Until: 31, Schema: noVolumes(listOf(device))},
	{Name: "block_device_mapping_v2", Since: 32, Until: 32, Schema: noVolumes(listOf(taggedDevice))},
	{Name: "block_device_mapping_v2", Since: 33, Until: 41, Schema: noVolumes(listOf(device))},
	{Name: "block_device_mapping_v2", Since: 42, Until: 66, Schema: noVolumes(listOf(taggedDevice))},
	{Name: "block_device_mapping_v2", Since: 67, Schema: noVolumes(listOf(
		taggedDevice.With("volume_type", js.Schema{js.Type("string", "null"), js.MaxLength(255)})))},
	{Name: "config_drive", Schema: api.SchemaBoolean.Described(
		"Whether the guest has a disk with its metadata and user data.")},
	{Name: "key_name", Schema: api.SchemaName.Described("A key pair of the user.")},
	{Name: "min_count", Schema: api.SchemaCount.Described("How many servers are created at least; 1.")},
	{Name: "max_count", Schema: api.SchemaCount.Described("How many are created at most; min_count.")},
	{Name: "return_reservation_id",
		Schema: api.SchemaBoolean.Described("Whether the answer has the reservation, and not a server.")},
	{Name: "security_groups", Schema: js.Schema{js.Type("array"),
		js.Items(js.ClosedObject(js.Properties{{Name: "name", Schema: api.SchemaName}}))}.Described(
		"The only name is default.")},
	{Name: "user_data", Schema: js.Schema{js.Type("string"), js.Format("base64"), js.MaxLength(65535)}.Described(
		"For cloud-init or the like, in base64.")},
	{Name: "description", Since: api.VDescription, Schema: api.SchemaDescription},
	{Name: "tags", Since: 52, Schema: js.Schema{js.Type("array"), js.Items(api.SchemaTag), js.MaxItems(50)}},
	{Name: certificates, Since: api.VTrustedCerts, Schema: schemaTrustedCerts},
}

// noNetworks and noVolumes say in the reference what is not there.
func noNetworks(s js.Schema) js.Schema {
	return s.Described("Before 2.37 leave it out; from then on it has to be none.")
}

func noVolumes(s js.Schema) js.Schema {
	return s.Described("Refused with 400 if there are any.")
}

// certificates is the name of a member of several bodies.
const certificates = "trusted_image_certificates"

// What a rebuild has as well.
var (
	schemaPersonality = js.Schema{js.Type("array"), js.Items(js.ClosedObject(js.Properties{
		{Name: "path", Schema: api.SchemaText},
		{Name: "contents", Schema: js.Schema{js.Type("string"), js.Format("base64")}},
	}))}
	schemaTrustedCerts = js.Schema{js.Type("array", "null"), js.MinItems(1), js.MaxItems(50), js.UniqueItems(),
		js.Items(js.Schema{js.Type("string"), js.MinLength(1)})}
)

// The two names that scheduler hints have.
const (
	hintsMember     = "os:scheduler_hints"
	hintsMemberLong = "OS-SCH-HNT:scheduler_hints"
)

// refusedHint is what the reference says of hints that do not exist here.
const refusedHint = "Refused with 400."

var uuidOrList = js.Schema{js.AnyOf(api.SchemaUUID, js.Schema{js.Type("array"), js.Items(api.SchemaUUID)})}

var hints = js.Schema{js.Type("object"), js.Properties{
	{Name: "group", Schema: api.SchemaUUID.Described("A server group.")},
	{Name: "different_host", Schema: uuidOrList.Described("Servers, on none of whose hosts it is to be.")},
	{Name: "same_host", Schema: js.Schema{js.Type("string", "array"), js.Items(api.SchemaUUID)}.Described(
		"Servers, on one of whose hosts it is to be.")},
	{Name: "query", Schema: js.Schema{js.Type("string", "object")}.Described(refusedHint)},
	{Name: "target_cell", Schema: api.SchemaName.Described(refusedHint)},
	{Name: "different_cell",
		Schema: js.Schema{js.Type("string", "array"), js.Items(api.SchemaText)}.Described(refusedHint)},
	{Name: "build_near_host_ip", Schema: api.SchemaIP.Described(refusedHint)},
	{Name: "cidr", Schema: js.Schema{js.Type("string"), js.Pattern("^/[0-9a-f.:]+$")}.Described(refusedHint)},
}}

// network is one of the networks that are asked for.
var network = js.Properties{
	{Name: "fixed_ip", Schema: api.SchemaIP},
	{Name: "port", Schema: js.Schema{js.AnyOf(api.SchemaUUID, js.Schema{js.Type("null")})}},
	{Name: "uuid", Schema: api.SchemaText},
}

func listOf(p js.Properties) js.Schema {
	return js.Schema{js.Type("array"), js.Items(js.ClosedObject(p))}
}

func networksOr(p js.Properties) js.Schema {
	return js.Schema{js.AnyOf(listOf(p), js.Schema{js.Type("string"), js.Enum("none", "auto")})}
}

// legacyDevice and device are block devices, in the older form and in the newer one, which can have
// a tag.
var (
	legacyDevice = js.Properties{
		{Name: "virtual_name", Schema: js.Schema{js.Type("string"), js.MaxLength(255)}},
		{Name: "volume_id", Schema: api.SchemaUUID},
		{Name: "snapshot_id", Schema: api.SchemaUUID},
		{Name: "volume_size", Schema: api.SchemaInteger(1)},
		{Name: "device_name", Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255),
			js.Pattern("^[a-zA-Z0-9._-r/]*$")}},
		{Name: "delete_on_termination", Schema: api.SchemaBoolean},
		{Name: "no_device"},
		{Name: "connection_info", Schema: js.Schema{js.Type("string"), js.MaxLength(16777215)}},
	}
	device = append(legacyDevice[:len(legacyDevice):len(legacyDevice)], js.Properties{
		{Name: "source_type", Schema: js.Schema{js.Type("string"), js.Enum("volume", "image", "snapshot", "blank")}},
		{Name: "uuid", Schema: js.Schema{js.Type("string"),
			js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9._-]*$")}},
		{Name: "image_id", Schema: api.SchemaUUID},
		{Name: "destination_type", Schema: js.Schema{js.Type("string"), js.Enum("local", "volume")}},
		{Name: "guest_format", Schema: js.Schema{js.Type("string"), js.MaxLength(255)}},
		{Name: "device_type", Schema: js.Schema{js.Type("string"), js.MaxLength(255)}},
		{Name: "disk_bus", Schema: js.Schema{js.Type("string"), js.MaxLength(255)}},
		{Name: "boot_index", Schema: js.Schema{js.Type("integer", "string", "null"), js.Pattern("^-?[0-9]+$")}},
	}...)
	taggedDevice = device.With("tag", api.SchemaTag)
)
