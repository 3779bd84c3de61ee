// SPDX-License-Identifier: Apache-2.0

package compute

import js "github.com/compute-agent/compute-agent/internal/jsonkit"

// createSchemas are the bodies of POST /servers. Members that this service cannot do anything with
// are described as Nova has them all the same, so that what Nova refuses is refused in its words;
// what is left of them is refused by the handler.
var createSchemas = func() schemaSteps {
	server := js.Properties{
		{Name: "name", Schema: schemaName},
		{Name: "imageRef", Schema: js.Schema{js.AnyOf(schemaUUID, js.Schema{js.Type("string"), js.MaxLength(0)})}},
		{Name: "flavorRef", Schema: js.Schema{js.Type("string", "integer"), js.MinLength(1)}},
		{Name: "adminPass", Schema: schemaText},
		{Name: "metadata", Schema: schemaMetadata},
		{Name: "networks", Schema: networkList(network)},
		{Name: "OS-DCF:diskConfig", Schema: schemaDiskConfig},
		{Name: "accessIPv4", Schema: js.Schema{js.Type("string"), js.Format("ipv4")}},
		{Name: "accessIPv6", Schema: js.Schema{js.Type("string"), js.Format("ipv6")}},
		{Name: "personality", Schema: schemaPersonality},
		{Name: "availability_zone", Schema: schemaName},
		{Name: "block_device_mapping", Schema: deviceList(legacyDevice)},
		{Name: "block_device_mapping_v2", Schema: deviceList(device)},
		{Name: "config_drive", Schema: schemaBoolean},
		{Name: "key_name", Schema: schemaName},
		{Name: "min_count", Schema: schemaCount},
		{Name: "max_count", Schema: schemaCount},
		{Name: "return_reservation_id", Schema: schemaBoolean},
		{Name: "security_groups", Schema: js.Schema{js.Type("array"), js.Items(js.ClosedObject(js.Properties{{Name: "name", Schema: schemaName}}))}},
		{Name: "user_data", Schema: js.Schema{js.Type("string"), js.Format("base64"), js.MaxLength(65535)}},
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
	server = server.With("networks", networkList(network.With("tag", schemaTag)))
	// Tags of devices were in 2.32 only, by mistake, and came back with 2.42.
	untagged := server
	server = server.With("block_device_mapping_v2", deviceList(tagged))
	steps = append(steps, step(32))
	server = untagged
	steps = append(steps, step(33))
	required = append(required, "networks")
	server = server.With("networks", networksOr(network.With("uuid", schemaUUID)))
	steps = append(steps, step(vNetworksRequired))
	server = server.With("networks", networksOr(network.With("uuid", schemaUUID).With("tag", schemaTag))).
		With("block_device_mapping_v2", deviceList(tagged))
	steps = append(steps, step(42))
	server = server.With("tags", js.Schema{js.Type("array"), js.Items(schemaTag), js.MaxItems(50)})
	steps = append(steps, step(vCreateTags))
	server = server.Without("personality")
	steps = append(steps, step(vNoInjectedFiles))
	server = server.With("trusted_image_certificates", schemaTrustedCerts)
	steps = append(steps, step(vTrustedCerts))
	server = server.With("block_device_mapping_v2", deviceList(tagged.With("volume_type", js.Schema{js.Type("string", "null"), js.MaxLength(255)})))
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

var uuidOrList = js.Schema{js.AnyOf(schemaUUID, js.Schema{js.Type("array"), js.Items(schemaUUID)})}

var hints = js.Schema{js.Type("object"), js.Properties{
	{Name: "group", Schema: schemaUUID},
	{Name: "different_host", Schema: uuidOrList},
	{Name: "same_host", Schema: js.Schema{js.Type("string", "array"), js.Items(schemaUUID)}},
	{Name: "query", Schema: js.Schema{js.Type("string", "object")}},
	{Name: "target_cell", Schema: schemaName},
	{Name: "different_cell", Schema: js.Schema{js.Type("string", "array"), js.Items(schemaText)}},
	{Name: "build_near_host_ip", Schema: schemaIP},
	{Name: "cidr", Schema: js.Schema{js.Type("string"), js.Pattern("^/[0-9a-f.:]+$")}},
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
