// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"

	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

var ()

func flavorBrief(v Version) js.Properties {
	p := fields("id", schemaText, "name", schemaText, "links", answerLinks)
	if v >= vFlavorDescription {
		p = append(p, fields("description", nullable("string"))...)
	}
	return p
}

func flavorWhole(v Version) js.Schema {
	p := append(flavorBrief(v), fields(
		"ram", described(answerInt, "In MiB."), "disk", described(answerInt, "In GiB."), "vcpus", answerInt,
		"swap", described(js.Schema{js.Type("integer", "string")}, "In MiB; an empty string for none."),
		"OS-FLV-EXT-DATA:ephemeral", described(answerInt, "In GiB."), "OS-FLV-DISABLED:disabled", answerBool, "os-flavor-access:is_public", answerBool,
		"rxtx_factor", described(js.Schema{js.Type("number", "string")}, "An empty string for none. It has no effect."),
	)...)
	if v < vFlavorSpecs {
		return whole(p)
	}
	return part(p, fields("extra_specs", described(answerTexts, "For those whom the policy os-flavor-extra-specs:index allows.")))
}

func flavorAnswer(v Version) js.Schema { return in("flavor", flavorWhole(v)) }

func flavorsAnswer(v Version) js.Schema {
	return part(fields("flavors", listOf(whole(flavorBrief(v)))), fields("flavors_links", answerNext))
}

func flavorDetailsAnswer(v Version) js.Schema {
	return part(fields("flavors", listOf(flavorWhole(v))), fields("flavors_links", answerNext))
}

var (
	extraSpecsAnswer = in("extra_specs", answerTexts)
	sentSpecs        = described(js.Schema{js.Type("object"), js.PatternProperties(anyKey, js.Schema{js.Type("string", "number")})}, "As they were sent.")
)

// limitsAnswer has the resources that quotas have, by their names among limits.
func limitsAnswer(v Version) js.Schema {
	var absolute js.Properties
	for i := range quotaResources {
		r := &quotaResources[i]
		if !r.shown(v) {
			continue
		}
		for _, name := range r.max {
			if name != maxImageMeta || v < vNoImageMeta {
				absolute = append(absolute, fields(name, described(answerInt, "-1 for no limit."))...)
			}
		}
		if r.used != "" {
			absolute = append(absolute, fields(r.used, answerInt)...)
		}
	}
	return in("limits", whole(fields("rate", answerNothing, "absolute", whole(absolute))))
}

// quotaAnswer is a quota set with something for each resource.
func quotaAnswer(v Version, of js.Schema, named bool) js.Schema {
	var set js.Properties
	if named {
		set = fields("id", described(schemaText, "The project."))
	}
	for i := range sortedResources {
		if r := &sortedResources[i]; r.shown(v) {
			set = append(set, fields(r.name, of)...)
		}
	}
	return in("quota_set", whole(set))
}

var quotaLimit = described(answerInt, "-1 for no limit.")

func quotaShown(v Version) js.Schema   { return quotaAnswer(v, quotaLimit, true) }
func quotaChanged(v Version) js.Schema { return quotaAnswer(v, quotaLimit, false) }
func quotaDetail(v Version) js.Schema {
	return quotaAnswer(v, whole(fields("limit", quotaLimit, "in_use", answerInt, "reserved", described(answerInt, "Always 0."))), true)
}

func numberOrUUID(v Version) js.Schema {
	if v < vServiceUUID {
		return described(answerInt, "A number of its cell: other cells have the same.")
	}
	return schemaUUID
}

var (
	serviceStatus = js.Schema{js.Type("string"), js.Enum("enabled", "disabled")}
	upOrDown      = js.Schema{js.Type("string"), js.Enum("up", "down")}
)

func serviceWhole(v Version) js.Schema {
	p := fields("id", numberOrUUID(v), "binary", schemaText, "host", schemaText, "zone", schemaText, "status", serviceStatus, "state", upOrDown,
		"updated_at", answerStampOr, "disabled_reason", nullable("string"))
	if v >= vForcedDown {
		p = append(p, fields("forced_down", answerBool)...)
	}
	return whole(p)
}

func servicesAnswer(v Version) js.Schema {
	one := serviceWhole(v)
	if v >= vDownCells {
		one = js.Schema{js.AnyOf(one, whole(fields("binary", schemaText, "host", schemaText, "status", js.Schema{js.Type("string"), js.Enum(statusUnknown)})))}
	}
	return in("services", listOf(one))
}

func serviceUpdated(v Version) js.Schema {
	if v >= vServiceUUID {
		return in("service", serviceWhole(v))
	}
	some := fields("status", serviceStatus, "disabled_reason", schemaText)
	if v >= vForcedDown {
		some = append(some, fields("forced_down", answerBool)...)
	}
	return in("service", part(fields("host", schemaText, "binary", schemaText), some))
}

func hypervisorBrief(v Version) js.Properties {
	return fields("id", numberOrUUID(v), "hypervisor_hostname", schemaText, "state", upOrDown, "status", serviceStatus)
}

var hypervisorHas = fields("servers", described(listOf(whole(fields("uuid", schemaUUID, "name", described(schemaText, "The name of the guest.")))),
	"If they are asked for, and there are any."))

// capacityMembers are what hypervisors have and use.
var capacityMembers = fields("vcpus", answerInt, "vcpus_used", answerInt, "memory_mb", answerInt, "memory_mb_used", answerInt, "free_ram_mb", answerInt,
	"local_gb", answerInt, "local_gb_used", answerInt, "free_disk_gb", answerInt, "disk_available_least", answerInt, "running_vms", answerInt,
	"current_workload", described(answerInt, "Always 0."))

func hypervisorDetail(v Version) js.Schema {
	cpus := described(schemaText, "Always empty.")
	if v >= vCPUInfo {
		cpus = answerEmpty
	}
	all := slices.Concat(hypervisorBrief(v), capacityMembers, fields(
		"hypervisor_type", described(nullable("string"), "As the virt driver reports it: `QEMU`, `fake`. Null if it, or the agent, does not."),
		"hypervisor_version", described(answerInt, "As the virt driver reports it: 7.2.1 is 7002001. 0 if it, or the agent, does not."),
		"host_ip", described(nullable("string"), "The address of `[agent] my_ip`, or that from which the agent talks to its cell. Null if the agent does not report it."),
		"service", whole(fields("id", numberOrUUID(v), "host", schemaText, "disabled_reason", nullable("string"))), "cpu_info", cpus,
	))
	if v < vServiceUUID {
		return whole(all)
	}
	return part(all, hypervisorHas)
}

func hypervisorList(v Version, of js.Schema) js.Schema {
	list := fields("hypervisors", listOf(of))
	if v < vHypervisorPages {
		return whole(list)
	}
	return part(list, fields("hypervisors_links", answerNext))
}

func hypervisorsAnswer(v Version) js.Schema {
	if v < vServiceUUID {
		return hypervisorList(v, whole(hypervisorBrief(v)))
	}
	return hypervisorList(v, part(hypervisorBrief(v), hypervisorHas))
}

func hypervisorDetailsAnswer(v Version) js.Schema { return hypervisorList(v, hypervisorDetail(v)) }

func hypervisorAnswer(v Version) js.Schema { return in("hypervisor", hypervisorDetail(v)) }

func hypervisorsFound(v Version) js.Schema {
	return in("hypervisors", listOf(whole(hypervisorBrief(v))))
}

func hypervisorServersFound(v Version) js.Schema {
	return in("hypervisors", listOf(part(hypervisorBrief(v), hypervisorHas)))
}

var statisticsAnswer = in("hypervisor_statistics", whole(append(fields("count", answerInt), capacityMembers...)))

func aggregateMembers(v Version) js.Properties {
	p := fields("id", answerInt, "name", schemaText, "availability_zone", nullable("string"), "created_at", answerStamp, "updated_at", answerStampOr,
		"deleted", described(answerBool, "Always false."), "deleted_at", described(answerNull, "Always null."))
	if v >= vAggregateUUID {
		p = append(p, fields("uuid", schemaUUID)...)
	}
	return p
}

func aggregateWhole(v Version) js.Schema {
	return whole(append(aggregateMembers(v), fields("hosts", listOf(schemaText), "metadata", answerTexts)...))
}

func aggregateAnswer(v Version) js.Schema  { return in("aggregate", aggregateWhole(v)) }
func aggregatesAnswer(v Version) js.Schema { return in("aggregates", listOf(aggregateWhole(v))) }
func aggregateCreated(v Version) js.Schema { return in("aggregate", whole(aggregateMembers(v))) }

func zones(hosts js.Schema) js.Schema {
	return in("availabilityZoneInfo", listOf(whole(fields("zoneName", schemaText, "zoneState", in("available", answerBool), "hosts", hosts))))
}

var (
	zonesAnswer       = zones(described(answerNull, "Always null."))
	zoneDetailsAnswer = zones(described(js.Schema{js.Type("object", "null"), js.PatternProperties(anyKey, js.Schema{
		js.Type("object"),
		js.PatternProperties(
			anyKey,
			whole(fields("available", described(answerBool, "Whether it is up."), "active", described(answerBool, "Always true."), "updated_at", answerStampOr)),
		),
	})},
		"By host, and the binary of the service; null for a zone that is not available."))
)

func serverGroupWhole(v Version) js.Schema {
	p := fields("id", schemaUUID, "name", schemaText, "members", described(listOf(schemaUUID), "Its servers."))
	if v >= vGroupOwner {
		p = append(p, fields("project_id", schemaText, "user_id", schemaText)...)
	}
	if v >= vGroupPolicy {
		return whole(append(p, fields("policy", schemaText, "rules", part(nil, fields(maxPerHost, answerInt)))...))
	}
	return whole(append(p, fields("policies", described(listOf(schemaText), "One."), "metadata", answerEmpty)...))
}

func serverGroupAnswer(v Version) js.Schema  { return in("server_group", serverGroupWhole(v)) }
func serverGroupsAnswer(v Version) js.Schema { return in("server_groups", listOf(serverGroupWhole(v))) }

func keyPairBrief(v Version) js.Properties {
	p := fields("name", schemaText, "public_key", schemaText, "fingerprint", schemaText)
	if v >= vKeyTypes {
		p = append(p, fields("type", js.Schema{js.Type("string"), js.Enum("ssh", "x509")})...)
	}
	return p
}

func keyPairsAnswer(v Version) js.Schema {
	list := fields("keypairs", listOf(in("keypair", whole(keyPairBrief(v)))))
	if v < vKeyPages {
		return whole(list)
	}
	return part(list, fields("keypairs_links", answerNext))
}

func keyPairAnswer(v Version) js.Schema {
	return in("keypair", whole(append(keyPairBrief(v), fields("id", answerInt, "user_id", schemaText, "created_at", answerStamp,
		"deleted", described(answerBool, "Always false."), "deleted_at", described(answerNull, "Always null."), "updated_at", described(answerNull, "Always null."))...)))
}

func keyPairCreated(v Version) js.Schema {
	return in("keypair", part(append(keyPairBrief(v), fields("user_id", schemaText)...),
		fields("private_key", described(schemaText, "In PEM, if no public key was sent. It is kept nowhere."))))
}
