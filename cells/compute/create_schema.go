// SPDX-License-Identifier: Apache-2.0

package compute

import js "github.com/compute-agent/compute-agent/internal/jsonkit"

// createSchemas are the bodies of POST /servers. Members that this service cannot do anything with
// are described as Nova has them all the same, so that what Nova refuses is refused in its words;
// what is left of them is refused by the handler.
var createSchemas = func() schemaSteps {
	server := js.Properties{
		{Name: "name", Schema: described(schemaName, "Printable characters, with no space at the beginning and the end. With max_count, servers have a number behind it.")},
		{
			Name: "imageRef",
			Schema: described(
				js.Schema{js.AnyOf(schemaUUID, js.Schema{js.Type("string"), js.MaxLength(0)})},
				"The id of an image: a file that the hosts have. Empty, the disk is empty. Required.",
			),
		},
		{Name: "flavorRef", Schema: described(js.Schema{js.Type("string", "integer"), js.MinLength(1)}, "The id of a flavor, or its URL.")},
		{Name: "adminPass", Schema: described(schemaText, "For the answer only: it is not set in the guest.")},
		{Name: "metadata", Schema: schemaMetadata},
		{Name: "networks", Schema: described(networkList(network), noNetworks)},
		{Name: "OS-DCF:diskConfig", Schema: described(schemaDiskConfig, "It has no effect.")},
		{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
		{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
		{Name: "personality", Schema: described(schemaPersonality, noVolumes)},
		{
			Name:   "availability_zone",
			Schema: described(schemaName, "Without it, that of the configuration or any. Administrators can name a host: ZONE:HOST, ZONE:HOST:NODE or ZONE::NODE."),
		},
		{Name: "block_device_mapping", Schema: described(deviceList(legacyDevice), noVolumes)},
		{Name: "block_device_mapping_v2", Schema: described(deviceList(device), noVolumes)},
		{Name: "config_drive", Schema: described(schemaBoolean, "Whether the guest has a disk with its metadata and user data.")},
		{Name: "key_name", Schema: described(schemaName, "A key pair of the user.")},
		{Name: "min_count", Schema: described(schemaCount, "How many servers are created at least; 1.")},
		{Name: "max_count", Schema: described(schemaCount, "How many are created at most; min_count.")},
		{Name: "return_reservation_id", Schema: described(schemaBoolean, "Whether the answer has the reservation, and not a server.")},
		{
			Name:   "security_groups",
			Schema: described(js.Schema{js.Type("array"), js.Items(js.ClosedObject(js.Properties{{Name: "name", Schema: schemaName}}))}, "The only name is default."),
		},
		{Name: "user_data", Schema: described(js.Schema{js.Type("string"), js.Format("base64"), js.MaxLength(65535)}, "For cloud-init or the like, in base64.")},
	}
	required := []string{"name", "flavorRef"}
	step := func(since Version) schemaSince {
		return schemaSince{since, js.ClosedObject(js.Properties{
			{Name: "server", Schema: js.ClosedObject(server, required...)},
			{Name: hintsMember, Schema: hints},
			{Name: hintsMemberLong, Schema: hints},
		}, "server")}
	}
	tagged := device.With("tag", schemaTag)
	steps := schemaSteps{step(1)}
	server = server.With("description", schemaDescription)
	steps = append(steps, step(19))
	server = server.With("networks", described(networkList(network.With("tag", schemaTag)), noNetworks))
	// Tags of devices were in 2.32 only, by mistake, and came back with 2.42.
	untagged := server
	server = server.With("block_device_mapping_v2", described(deviceList(tagged), noVolumes))
	steps = append(steps, step(32))
	server = untagged
	steps = append(steps, step(33))
	required = append(required, "networks")
	server = server.With("networks", described(networksOr(network.With("uuid", schemaUUID)), noNetworks))
	steps = append(steps, step(vNetworksRequired))
	server = server.With("networks", described(networksOr(network.With("uuid", schemaUUID).With("tag", schemaTag)), noNetworks)).
		With("block_device_mapping_v2", described(deviceList(tagged), noVolumes))
	steps = append(steps, step(42))
	server = server.With("tags", js.Schema{js.Type("array"), js.Items(schemaTag), js.MaxItems(50)})
	steps = append(steps, step(vCreateTags))
	server = server.Without("personality")
	steps = append(steps, step(vNoInjectedFiles))
	server = server.With("trusted_image_certificates", schemaTrustedCerts)
	steps = append(steps, step(vTrustedCerts))
	server = server.With("block_device_mapping_v2", described(deviceList(tagged.With("volume_type", js.Schema{js.Type("string", "null"), js.MaxLength(255)})), noVolumes))
	steps = append(steps, step(67))
	newestFirst := make(schemaSteps, 0, len(steps))
	for i := range steps {
		newestFirst = append(newestFirst, steps[len(steps)-1-i])
	}
	return newestFirst
}()

// What a rebuild has as well.
var (
	schemaDiskConfig  = js.Schema{js.Type("string"), js.Enum("AUTO", "MANUAL")}
	schemaPersonality = js.Schema{js.Type("array"), js.Items(js.ClosedObject(js.Properties{
		{Name: "path", Schema: schemaText},
		{Name: "contents", Schema: js.Schema{js.Type("string"), js.Format("base64")}},
	}))}
	schemaTrustedCerts = js.Schema{js.Type("array", "null"), js.MinItems(1), js.MaxItems(50), js.UniqueItems(), js.Items(js.Schema{js.Type("string"), js.MinLength(1)})}
)

// The microversions of what is sent in bodies.
const (
	vCreateTags      Version = 52 // tags on create
	vNoInjectedFiles Version = 57 // no personality on create; no injected files among limits and quotas
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

var uuidOrList = js.Schema{js.AnyOf(schemaUUID, js.Schema{js.Type("array"), js.Items(schemaUUID)})}

var hints = js.Schema{js.Type("object"), js.Properties{
	{Name: "group", Schema: described(schemaUUID, "A server group.")},
	{Name: "different_host", Schema: described(uuidOrList, "Servers, on none of whose hosts it is to be.")},
	{Name: "same_host", Schema: described(js.Schema{js.Type("string", "array"), js.Items(schemaUUID)}, "Servers, on one of whose hosts it is to be.")},
	{Name: "query", Schema: described(js.Schema{js.Type("string", "object")}, refusedHint)},
	{Name: "target_cell", Schema: described(schemaName, refusedHint)},
	{Name: "different_cell", Schema: described(js.Schema{js.Type("string", "array"), js.Items(schemaText)}, refusedHint)},
	{Name: "build_near_host_ip", Schema: described(schemaIP, refusedHint)},
	{Name: "cidr", Schema: described(js.Schema{js.Type("string"), js.Pattern("^/[0-9a-f.:]+$")}, refusedHint)},
}}

// network is one of the networks that are asked for.
var network = js.Properties{
	{Name: "fixed_ip", Schema: schemaIP},
	{Name: "port", Schema: js.Schema{js.AnyOf(schemaUUID, js.Schema{js.Type("null")})}},
	{Name: "uuid", Schema: schemaText},
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
		{Name: "volume_id", Schema: schemaUUID},
		{Name: "snapshot_id", Schema: schemaUUID},
		{Name: "volume_size", Schema: schemaInteger(1)},
		{Name: "device_name", Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9._-r/]*$")}},
		{Name: "delete_on_termination", Schema: schemaBoolean},
		{Name: "no_device"},
		{Name: "connection_info", Schema: js.Schema{js.Type("string"), js.MaxLength(16777215)}},
	}
	device = append(legacyDevice[:len(legacyDevice):len(legacyDevice)], js.Properties{
		{Name: "source_type", Schema: js.Schema{js.Type("string"), js.Enum("volume", "image", "snapshot", "blank")}},
		{Name: "uuid", Schema: js.Schema{js.Type("string"), js.MinLength(1), js.MaxLength(255), js.Pattern("^[a-zA-Z0-9._-]*$")}},
		{Name: "image_id", Schema: schemaUUID},
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
