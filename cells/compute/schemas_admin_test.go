// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The microversions that change answers.
const (
	vForcedDown      api.Version = 11 // services can be forced down
	vCPUInfo         api.Version = 28 // of hypervisors, as an object
	vHypervisorPages api.Version = 33 // lists of hypervisors have pages
	vAggregateUUID   api.Version = 41
	vServiceUUID     api.Version = 53 // services go by their uuid
	vMigrationPages  api.Version = 59 // lists of migrations have pages, uuids and changes-since
)

func numberOrUUID(v api.Version) js.Schema {
	if v < vServiceUUID {
		return described(answerInt, "A number of its cell: other cells have the same.")
	}
	return api.SchemaUUID
}

var (
	serviceStatus = js.Schema{js.Type("string"), js.Enum("enabled", "disabled")}
	upOrDown      = js.Schema{js.Type("string"), js.Enum("up", "down")}
)

func serviceWhole(v api.Version) js.Schema {
	p := members("id", numberOrUUID(v), "binary", api.SchemaText, "host", api.SchemaText, "zone", api.SchemaText,
		"status", serviceStatus, "state", upOrDown,
		"updated_at", answerStampOr, "disabled_reason", orNull("string"))
	if v >= vForcedDown {
		p = append(p, members("forced_down", answerBool)...)
	}
	return whole(p)
}

func servicesAnswer(v api.Version) js.Schema {
	one := serviceWhole(v)
	if v >= api.VDownCells {
		one = js.Schema{js.AnyOf(one, whole(members("binary", api.SchemaText, "host", api.SchemaText,
			"status", js.Schema{js.Type("string"), js.Enum(api.StatusUnknown)})))}
	}
	return in("services", list(one))
}

func serviceUpdated(v api.Version) js.Schema {
	if v >= vServiceUUID {
		return in("service", serviceWhole(v))
	}
	some := members("status", serviceStatus, "disabled_reason", api.SchemaText)
	if v >= vForcedDown {
		some = append(some, members("forced_down", answerBool)...)
	}
	return in("service", part(members("host", api.SchemaText, "binary", api.SchemaText), some))
}

func hypervisorBrief(v api.Version) js.Properties {
	return members("id", numberOrUUID(v), "hypervisor_hostname", api.SchemaText,
		"state", upOrDown, "status", serviceStatus)
}

var hypervisorHas = members(
	"servers", described(list(whole(members("uuid", api.SchemaUUID,
		"name", described(api.SchemaText, "The name of the guest.")))),
		"If they are asked for, and there are any."))

// capacityMembers are what hypervisors have and use.
var capacityMembers = members("vcpus", answerInt, "vcpus_used", answerInt, "memory_mb", answerInt,
	"memory_mb_used", answerInt, "free_ram_mb", answerInt,
	"local_gb", answerInt, "local_gb_used", answerInt, "free_disk_gb", answerInt,
	"disk_available_least", answerInt, "running_vms", answerInt,
	"current_workload", described(answerInt, "Always 0."))

func hypervisorDetail(v api.Version) js.Schema {
	cpus := described(api.SchemaText, "Always empty.")
	if v >= vCPUInfo {
		cpus = answerEmpty
	}
	all := slices.Concat(hypervisorBrief(v), capacityMembers, members(
		"hypervisor_type",
		described(orNull("string"),
			"As the virt driver reports it: `QEMU`, `fake`. Null if it, or the agent, does not."),
		"hypervisor_version",
		described(answerInt,
			"As the virt driver reports it: 7.2.1 is 7002001. 0 if it, or the agent, does not."),
		"host_ip",
		described(orNull("string"),
			"The address of `[agent] my_ip`, or that from which the agent talks to its cell. Null if the agent does "+
				"not report it."),
		"service",
		whole(members("id", numberOrUUID(v),
			"host", api.SchemaText, "disabled_reason", orNull("string"))),
		"cpu_info",
		cpus,
	))
	if v < vServiceUUID {
		return whole(all)
	}
	return part(all, hypervisorHas)
}

func hypervisorList(v api.Version, of js.Schema) js.Schema {
	list := members("hypervisors", list(of))
	if v < vHypervisorPages {
		return whole(list)
	}
	return part(list, members("hypervisors_links", answerNext))
}

func hypervisorsAnswer(v api.Version) js.Schema {
	if v < vServiceUUID {
		return hypervisorList(v, whole(hypervisorBrief(v)))
	}
	return hypervisorList(v, part(hypervisorBrief(v), hypervisorHas))
}

func hypervisorDetailsAnswer(v api.Version) js.Schema { return hypervisorList(v, hypervisorDetail(v)) }

func hypervisorAnswer(v api.Version) js.Schema { return in("hypervisor", hypervisorDetail(v)) }

func hypervisorsFound(v api.Version) js.Schema {
	return in("hypervisors", list(whole(hypervisorBrief(v))))
}

func hypervisorServersFound(v api.Version) js.Schema {
	return in("hypervisors", list(part(hypervisorBrief(v), hypervisorHas)))
}

var statisticsAnswer = in("hypervisor_statistics",
	whole(append(members("count", answerInt), capacityMembers...)))

func aggregateMembers(v api.Version) js.Properties {
	p := members("id", answerInt, "name", api.SchemaText, "availability_zone", orNull("string"),
		"created_at", answerStamp, "updated_at", answerStampOr,
		"deleted", described(answerBool, "Always false."),
		"deleted_at", described(answerNull, "Always null."))
	if v >= vAggregateUUID {
		p = append(p, members("uuid", api.SchemaUUID)...)
	}
	return p
}

func aggregateWhole(v api.Version) js.Schema {
	return whole(append(aggregateMembers(v),
		members("hosts", list(api.SchemaText), "metadata", answerTexts)...))
}

func aggregateAnswer(v api.Version) js.Schema { return in("aggregate", aggregateWhole(v)) }

func aggregatesAnswer(v api.Version) js.Schema {
	return in("aggregates", list(aggregateWhole(v)))
}

func aggregateCreated(v api.Version) js.Schema {
	return in("aggregate", whole(aggregateMembers(v)))
}

func zones(hosts js.Schema) js.Schema {
	return in("availabilityZoneInfo", list(
		whole(members("zoneName", api.SchemaText,
			"zoneState", in("available", answerBool), "hosts", hosts))))
}

var (
	zonesAnswer       = zones(described(answerNull, "Always null."))
	zoneDetailsAnswer = zones(
		described(js.Schema{js.Type("object", "null"), js.PatternProperties(anyKey, js.Schema{
			js.Type("object"),
			js.PatternProperties(
				anyKey,
				whole(members("available", described(answerBool, "Whether it is up."),
					"active", described(answerBool, "Always true."),
					"updated_at", answerStampOr)),
			),
		})},
			"By host, and the binary of the service; null for a zone that is not available."))
)

// migrationsAnswer has null where nothing is kept.
func migrationsAnswer(v api.Version) js.Schema {
	const hosts = "For those whom the policy os-migrations:index:host allows; null for others."
	host := described(orNull("string"), hosts)
	p := members("id", answerInt, "instance_uuid", api.SchemaUUID, "status", api.SchemaText,
		"created_at", answerStamp, "updated_at", answerStampOr,
		"source_compute", host, "source_node", host, "dest_compute", host, "dest_node", host,
		"dest_host", described(answerNull, "Always null."),
		"new_instance_type_id", described(answerNull, "Always null."),
		"old_instance_type_id", described(answerNull, "Always null."))
	if v >= api.VMigrationTypes {
		p = append(p, members(
			"migration_type", js.Schema{js.Type("string"), js.Enum("migration", "evacuation")})...)
	}
	if v < vMigrationPages {
		return in("migrations", list(whole(p)))
	}
	p = append(p, members("uuid", api.SchemaUUID)...)
	return part(members("migrations", list(whole(p))),
		members("migrations_links", answerNext))
}
