// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

func numberOrUUID(v api.Version) js.Schema {
	if v < vServiceUUID {
		return apidoc.Described(api.AnswerInt, "A number of its cell: other cells have the same.")
	}
	return api.SchemaUUID
}

var (
	serviceStatus = js.Schema{js.Type("string"), js.Enum("enabled", "disabled")}
	upOrDown      = js.Schema{js.Type("string"), js.Enum("up", "down")}
)

func serviceWhole(v api.Version) js.Schema {
	p := apidoc.Members("id", numberOrUUID(v), "binary", api.SchemaText, "host", api.SchemaText, "zone", api.SchemaText,
		"status", serviceStatus, "state", upOrDown,
		"updated_at", api.AnswerStampOr, "disabled_reason", apidoc.OrNull("string"))
	if v >= vForcedDown {
		p = append(p, apidoc.Members("forced_down", api.AnswerBool)...)
	}
	return apidoc.Whole(p)
}

func servicesAnswer(v api.Version) js.Schema {
	one := serviceWhole(v)
	if v >= api.VDownCells {
		one = js.Schema{js.AnyOf(one, apidoc.Whole(apidoc.Members("binary", api.SchemaText, "host", api.SchemaText,
			"status", js.Schema{js.Type("string"), js.Enum(api.StatusUnknown)})))}
	}
	return api.In("services", apidoc.List(one))
}

func serviceUpdated(v api.Version) js.Schema {
	if v >= vServiceUUID {
		return api.In("service", serviceWhole(v))
	}
	some := apidoc.Members("status", serviceStatus, "disabled_reason", api.SchemaText)
	if v >= vForcedDown {
		some = append(some, apidoc.Members("forced_down", api.AnswerBool)...)
	}
	return api.In("service", api.Part(apidoc.Members("host", api.SchemaText, "binary", api.SchemaText), some))
}

func hypervisorBrief(v api.Version) js.Properties {
	return apidoc.Members("id", numberOrUUID(v), "hypervisor_hostname", api.SchemaText,
		"state", upOrDown, "status", serviceStatus)
}

var hypervisorHas = apidoc.Members(
	"servers", apidoc.Described(apidoc.List(apidoc.Whole(apidoc.Members("uuid", api.SchemaUUID,
		"name", apidoc.Described(api.SchemaText, "The name of the guest.")))),
		"If they are asked for, and there are any."))

// capacityMembers are what hypervisors have and use.
var capacityMembers = apidoc.Members("vcpus", api.AnswerInt, "vcpus_used", api.AnswerInt, "memory_mb", api.AnswerInt,
	"memory_mb_used", api.AnswerInt, "free_ram_mb", api.AnswerInt,
	"local_gb", api.AnswerInt, "local_gb_used", api.AnswerInt, "free_disk_gb", api.AnswerInt,
	"disk_available_least", api.AnswerInt, "running_vms", api.AnswerInt,
	"current_workload", apidoc.Described(api.AnswerInt, "Always 0."))

func hypervisorDetail(v api.Version) js.Schema {
	cpus := apidoc.Described(api.SchemaText, "Always empty.")
	if v >= vCPUInfo {
		cpus = api.AnswerEmpty
	}
	all := slices.Concat(hypervisorBrief(v), capacityMembers, apidoc.Members(
		"hypervisor_type",
		apidoc.Described(apidoc.OrNull("string"),
			"As the virt driver reports it: `QEMU`, `fake`. Null if it, or the agent, does not."),
		"hypervisor_version",
		apidoc.Described(api.AnswerInt,
			"As the virt driver reports it: 7.2.1 is 7002001. 0 if it, or the agent, does not."),
		"host_ip",
		apidoc.Described(apidoc.OrNull("string"),
			"The address of `[agent] my_ip`, or that from which the agent talks to its cell. Null if the agent does "+
				"not report it."),
		"service",
		apidoc.Whole(apidoc.Members("id", numberOrUUID(v),
			"host", api.SchemaText, "disabled_reason", apidoc.OrNull("string"))),
		"cpu_info",
		cpus,
	))
	if v < vServiceUUID {
		return apidoc.Whole(all)
	}
	return api.Part(all, hypervisorHas)
}

func hypervisorList(v api.Version, of js.Schema) js.Schema {
	list := apidoc.Members("hypervisors", apidoc.List(of))
	if v < vHypervisorPages {
		return apidoc.Whole(list)
	}
	return api.Part(list, apidoc.Members("hypervisors_links", api.AnswerNext))
}

func hypervisorsAnswer(v api.Version) js.Schema {
	if v < vServiceUUID {
		return hypervisorList(v, apidoc.Whole(hypervisorBrief(v)))
	}
	return hypervisorList(v, api.Part(hypervisorBrief(v), hypervisorHas))
}

func hypervisorDetailsAnswer(v api.Version) js.Schema { return hypervisorList(v, hypervisorDetail(v)) }

func hypervisorAnswer(v api.Version) js.Schema { return api.In("hypervisor", hypervisorDetail(v)) }

func hypervisorsFound(v api.Version) js.Schema {
	return api.In("hypervisors", apidoc.List(apidoc.Whole(hypervisorBrief(v))))
}

func hypervisorServersFound(v api.Version) js.Schema {
	return api.In("hypervisors", apidoc.List(api.Part(hypervisorBrief(v), hypervisorHas)))
}

var statisticsAnswer = api.In("hypervisor_statistics",
	apidoc.Whole(append(apidoc.Members("count", api.AnswerInt), capacityMembers...)))

func aggregateMembers(v api.Version) js.Properties {
	p := apidoc.Members("id", api.AnswerInt, "name", api.SchemaText, "availability_zone", apidoc.OrNull("string"),
		"created_at", api.AnswerStamp, "updated_at", api.AnswerStampOr,
		"deleted", apidoc.Described(api.AnswerBool, "Always false."),
		"deleted_at", apidoc.Described(api.AnswerNull, "Always null."))
	if v >= vAggregateUUID {
		p = append(p, apidoc.Members("uuid", api.SchemaUUID)...)
	}
	return p
}

func aggregateWhole(v api.Version) js.Schema {
	return apidoc.Whole(append(aggregateMembers(v),
		apidoc.Members("hosts", apidoc.List(api.SchemaText), "metadata", api.AnswerTexts)...))
}

func aggregateAnswer(v api.Version) js.Schema { return api.In("aggregate", aggregateWhole(v)) }

func aggregatesAnswer(v api.Version) js.Schema {
	return api.In("aggregates", apidoc.List(aggregateWhole(v)))
}

func aggregateCreated(v api.Version) js.Schema {
	return api.In("aggregate", apidoc.Whole(aggregateMembers(v)))
}

func zones(hosts js.Schema) js.Schema {
	return api.In("availabilityZoneInfo", apidoc.List(
		apidoc.Whole(apidoc.Members("zoneName", api.SchemaText,
			"zoneState", api.In("available", api.AnswerBool), "hosts", hosts))))
}

var (
	zonesAnswer       = zones(apidoc.Described(api.AnswerNull, "Always null."))
	zoneDetailsAnswer = zones(
		apidoc.Described(js.Schema{js.Type("object", "null"), js.PatternProperties(api.AnyKey, js.Schema{
			js.Type("object"),
			js.PatternProperties(
				api.AnyKey,
				apidoc.Whole(apidoc.Members("available", apidoc.Described(api.AnswerBool, "Whether it is up."),
					"active", apidoc.Described(api.AnswerBool, "Always true."),
					"updated_at", api.AnswerStampOr)),
			),
		})},
			"By host, and the binary of the service; null for a zone that is not available."))
)

// migrationsAnswer has null where nothing is kept.
func migrationsAnswer(v api.Version) js.Schema {
	const hosts = "For those whom the policy os-migrations:index:host allows; null for others."
	host := apidoc.Described(apidoc.OrNull("string"), hosts)
	p := apidoc.Members("id", api.AnswerInt, "instance_uuid", api.SchemaUUID, "status", api.SchemaText,
		"created_at", api.AnswerStamp, "updated_at", api.AnswerStampOr,
		"source_compute", host, "source_node", host, "dest_compute", host, "dest_node", host,
		"dest_host", apidoc.Described(api.AnswerNull, "Always null."),
		"new_instance_type_id", apidoc.Described(api.AnswerNull, "Always null."),
		"old_instance_type_id", apidoc.Described(api.AnswerNull, "Always null."))
	if v >= api.VMigrationTypes {
		p = append(p, apidoc.Members(
			"migration_type", js.Schema{js.Type("string"), js.Enum("migration", "evacuation")})...)
	}
	if v < vMigrationPages {
		return api.In("migrations", apidoc.List(apidoc.Whole(p)))
	}
	p = append(p, apidoc.Members("uuid", api.SchemaUUID)...)
	return api.Part(apidoc.Members("migrations", apidoc.List(apidoc.Whole(p))),
		apidoc.Members("migrations_links", api.AnswerNext))
}
