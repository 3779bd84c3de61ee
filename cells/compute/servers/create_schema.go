// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/cells/compute/serverview"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// createSchemas are the bodies of POST /servers. Members that this service cannot do anything with
// are described as Nova has them all the same, so that what Nova refuses is refused in its words;
// what is left of them is refused by the handler.
var createSchemas = func() api.SchemaSteps {
	server := js.Properties{
		{Name: "name", Schema: apidoc.Described(api.SchemaName,
			"Printable characters, with no space at the beginning and the end. With max_count, servers have a "+
				"number behind it.")},
		{
			Name: "imageRef",
			Schema: apidoc.Described(
				js.Schema{js.AnyOf(api.SchemaUUID, js.Schema{js.Type("string"), js.MaxLength(0)})},
				"The id of an image: a file that the hosts have. Empty, the disk is empty. Required.",
			),
		},
		{Name: "flavorRef", Schema: apidoc.Described(js.Schema{js.Type("string", "integer"), js.MinLength(1)},
			"The id of a flavor, or its URL.")},
		{Name: "adminPass",
			Schema: apidoc.Described(api.SchemaText, "For the answer only: it is not set in the guest.")},
		{Name: "metadata", Schema: api.SchemaMetadata},
		{Name: "networks", Schema: apidoc.Described(networkList(network), noNetworks)},
		{Name: "OS-DCF:diskConfig", Schema: apidoc.Described(serverview.SchemaDiskConfig, "It has no effect.")},
		{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
		{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
		{Name: "personality", Schema: apidoc.Described(schemaPersonality, noVolumes)},
		{
			Name: "availability_zone",
			Schema: apidoc.Described(api.SchemaName,
				"Without it, that of the configuration or any. Administrators can name a host: ZONE:HOST, "+
					"ZONE:HOST:NODE or ZONE::NODE."),
		},
		{Name: "block_device_mapping", Schema: apidoc.Described(deviceList(legacyDevice), noVolumes)},
		{Name: "block_device_mapping_v2", Schema: apidoc.Described(deviceList(device), noVolumes)},
		{Name: "config_drive", Schema: apidoc.Described(api.SchemaBoolean,
			"Whether the guest has a disk with its metadata and user data.")},
		{Name: "key_name", Schema: apidoc.Described(api.SchemaName, "A key pair of the user.")},
		{Name: "min_count", Schema: apidoc.Described(api.SchemaCount, "How many servers are created at least; 1.")},
		{Name: "max_count", Schema: apidoc.Described(api.SchemaCount, "How many are created at most; min_count.")},
		{Name: "return_reservation_id",
			Schema: apidoc.Described(api.SchemaBoolean, "Whether the answer has the reservation, and not a server.")},
		{
			Name: "security_groups",
			Schema: apidoc.Described(
				js.Schema{js.Type("array"),
					js.Items(js.ClosedObject(js.Properties{{Name: "name", Schema: api.SchemaName}}))},
				"The only name is default."),
		},
		{Name: "user_data",
			Schema: apidoc.Described(js.Schema{js.Type("string"), js.Format("base64"), js.MaxLength(65535)},
				"For cloud-init or the like, in base64.")},
	}
	required := []string{"name", "flavorRef"}
	step := func(since api.Version) api.SchemaSince {
		return api.SchemaSince{Since: since, Schema: js.ClosedObject(js.Properties{
			{Name: "server", Schema: js.ClosedObject(server, required...)},
			{Name: hintsMember, Schema: hints},
			{Name: hintsMemberLong, Schema: hints},
		}, "server")}
	}
	tagged := device.With("tag", api.SchemaTag)
	steps := api.SchemaSteps{step(1)}
	server = server.With("description", api.SchemaDescription)
	steps = append(steps, step(19))
	server = server.With("networks", apidoc.Described(networkList(network.With("tag", api.SchemaTag)), noNetworks))
	// Tags of devices were in 2.32 only, by mistake, and came back with 2.42.
	untagged := server
	server = server.With("block_device_mapping_v2", apidoc.Described(deviceList(tagged), noVolumes))
	steps = append(steps, step(32))
	server = untagged
	steps = append(steps, step(33))
	required = append(required, "networks")
	server = server.With("networks", apidoc.Described(networksOr(network.With("uuid", api.SchemaUUID)), noNetworks))
	steps = append(steps, step(vNetworksRequired))
	server = server.With("networks", apidoc.Described(
		networksOr(network.With("uuid", api.SchemaUUID).With("tag", api.SchemaTag)), noNetworks)).
		With("block_device_mapping_v2", apidoc.Described(deviceList(tagged), noVolumes))
	steps = append(steps, step(42))
	server = server.With("tags", js.Schema{js.Type("array"), js.Items(api.SchemaTag), js.MaxItems(50)})
	steps = append(steps, step(vCreateTags))
	server = server.Without("personality")
	steps = append(steps, step(api.VNoInjectedFiles))
	server = server.With("trusted_image_certificates", schemaTrustedCerts)
	steps = append(steps, step(api.VTrustedCerts))
	server = server.With("block_device_mapping_v2",
		apidoc.Described(
			deviceList(tagged.With("volume_type", js.Schema{js.Type("string", "null"), js.MaxLength(255)})), noVolumes))
	steps = append(steps, step(67))
	newestFirst := make(api.SchemaSteps, 0, len(steps))
	for i := range steps {
		newestFirst = append(newestFirst, steps[len(steps)-1-i])
	}
	return newestFirst
}()

// What a rebuild has as well.
var (
	schemaPersonality = js.Schema{js.Type("array"), js.Items(js.ClosedObject(js.Properties{
		{Name: "path", Schema: api.SchemaText},
		{Name: "contents", Schema: js.Schema{js.Type("string"), js.Format("base64")}},
	}))}
	schemaTrustedCerts = js.Schema{js.Type("array", "null"), js.MinItems(1), js.MaxItems(50), js.UniqueItems(),
		js.Items(js.Schema{js.Type("string"), js.MinLength(1)})}
)

// The microversions of what is sent in bodies.
const (
	vCreateTags api.Version = 52 // tags on create
)

// The two names that scheduler hints have.
const (
	hintsMember     = "os:scheduler_hints"
	hintsMemberLong = "OS-SCH-HNT:scheduler_hints"
)

// noNetworks is what it says of networks.
const noNetworks = "Before 2.37 leave it out; from then on it has to be none."

// noVolumes is what it says of volumes and the like.
const noVolumes = "Refused with 400 if there are any."

// refusedHint is what the reference says of hints that do not exist here.
const refusedHint = "Refused with 400."

var uuidOrList = js.Schema{js.AnyOf(api.SchemaUUID, js.Schema{js.Type("array"), js.Items(api.SchemaUUID)})}

var hints = js.Schema{js.Type("object"), js.Properties{
	{Name: "group", Schema: apidoc.Described(api.SchemaUUID, "A server group.")},
	{Name: "different_host", Schema: apidoc.Described(uuidOrList, "Servers, on none of whose hosts it is to be.")},
	{Name: "same_host", Schema: apidoc.Described(js.Schema{js.Type("string", "array"), js.Items(api.SchemaUUID)},
		"Servers, on one of whose hosts it is to be.")},
	{Name: "query", Schema: apidoc.Described(js.Schema{js.Type("string", "object")}, refusedHint)},
	{Name: "target_cell", Schema: apidoc.Described(api.SchemaName, refusedHint)},
	{Name: "different_cell",
		Schema: apidoc.Described(js.Schema{js.Type("string", "array"), js.Items(api.SchemaText)}, refusedHint)},
	{Name: "build_near_host_ip", Schema: apidoc.Described(api.SchemaIP, refusedHint)},
	{Name: "cidr", Schema: apidoc.Described(js.Schema{js.Type("string"), js.Pattern("^/[0-9a-f.:]+$")}, refusedHint)},
}}

// network is one of the networks that are asked for.
var network = js.Properties{
	{Name: "fixed_ip", Schema: api.SchemaIP},
	{Name: "port", Schema: js.Schema{js.AnyOf(api.SchemaUUID, js.Schema{js.Type("null")})}},
	{Name: "uuid", Schema: api.SchemaText},
}

func networkList(p js.Properties) js.Schema {
	return js.Schema{js.Type("array"), js.Items(js.ClosedObject(p))}
}

func networksOr(p js.Properties) js.Schema {
	return js.Schema{js.AnyOf(networkList(p), js.Schema{js.Type("string"), js.Enum("none", "auto")})}
}

// legacyDevice and device are block devices, in the older form and in the newer one.
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
)

func deviceList(p js.Properties) js.Schema {
	return js.Schema{js.Type("array"), js.Items(js.ClosedObject(p))}
}
