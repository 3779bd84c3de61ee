// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// The microversions that change answers.
const (
	vKeyTypes          api.Version = 2  // key pairs have a type; 201 and 204
	vGroupOwner        api.Version = 13 // server groups say whose they are
	vKeyPages          api.Version = 35 // lists of key pairs have pages
	vNoNetworkQuotas   api.Version = 36 // no quotas for networks
	vNoImageMeta       api.Version = 39 // no maxImageMeta among limits
	vFlavorDescription api.Version = 55
	vFlavorSpecs       api.Version = 61 // extra specs are shown with the flavor
	vGroupPolicy       api.Version = 64 // one policy, with rules
)

// The schemas of answers, for the reference and the OpenAPI document.

func flavorBrief(v api.Version) js.Properties {
	p := members("id", api.SchemaText, "name", api.SchemaText, "links", answerLinks)
	if v >= vFlavorDescription {
		p = append(p, members("description", orNull("string"))...)
	}
	return p
}

func flavorWhole(v api.Version) js.Schema {
	p := append(flavorBrief(v), members(
		"ram", described(answerInt, "In MiB."),
		"disk", described(answerInt, "In GiB."), "vcpus", answerInt,
		"swap", described(js.Schema{js.Type("integer", "string")}, "In MiB; an empty string for none."),
		"OS-FLV-EXT-DATA:ephemeral", described(answerInt, "In GiB."),
		"OS-FLV-DISABLED:disabled", answerBool, "os-flavor-access:is_public", answerBool,
		"rxtx_factor", described(js.Schema{js.Type("number", "string")},
			"An empty string for none. It has no effect."),
	)...)
	if v < vFlavorSpecs {
		return whole(p)
	}
	return part(p, members("extra_specs", described(answerTexts,
		"For those whom the policy os-flavor-extra-specs:index allows.")))
}

func flavorAnswer(v api.Version) js.Schema { return in("flavor", flavorWhole(v)) }

func flavorsAnswer(v api.Version) js.Schema {
	return part(members("flavors", list(whole(flavorBrief(v)))),
		members("flavors_links", answerNext))
}

func flavorDetailsAnswer(v api.Version) js.Schema {
	return part(members("flavors", list(flavorWhole(v))),
		members("flavors_links", answerNext))
}

var (
	extraSpecsAnswer = in("extra_specs", answerTexts)
	sentSpecs        = described(
		js.Schema{js.Type("object"), js.PatternProperties(anyKey, js.Schema{js.Type("string", "number")})},
		"As they were sent.")
)

// quotaResource is a resource that quota sets have; an until of 0 is no bound. max and used are its
// names among limits.
type quotaResource struct {
	name  string
	until api.Version
	max   []string
	used  string
}

// quotaResources are in the order that limits have. Quota sets have them by name.
var quotaResources = []quotaResource{
	{name: "instances", max: []string{"maxTotalInstances"}, used: "totalInstancesUsed"},
	{name: "cores", max: []string{"maxTotalCores"}, used: "totalCoresUsed"},
	{name: "ram", max: []string{"maxTotalRAMSize"}, used: "totalRAMUsed"},
	{name: "metadata_items", max: []string{"maxServerMeta", maxImageMeta}},
	{name: "injected_files", until: api.VNoInjectedFiles - 1, max: []string{"maxPersonality"}},
	{name: "injected_file_content_bytes", until: api.VNoInjectedFiles - 1, max: []string{"maxPersonalitySize"}},
	{name: "injected_file_path_bytes", until: api.VNoInjectedFiles - 1},
	{name: "key_pairs", max: []string{"maxTotalKeypairs"}},
	{name: "server_groups", max: []string{"maxServerGroups"}, used: "totalServerGroupsUsed"},
	{name: "server_group_members", max: []string{"maxServerGroupMembers"}},
	{name: "fixed_ips", until: vNoNetworkQuotas - 1},
	{name: "floating_ips", until: vNoNetworkQuotas - 1, max: []string{"maxTotalFloatingIps"},
		used: "totalFloatingIpsUsed"},
	{name: "security_groups", until: vNoNetworkQuotas - 1, max: []string{"maxSecurityGroups"},
		used: "totalSecurityGroupsUsed"},
	{name: "security_group_rules", until: vNoNetworkQuotas - 1, max: []string{"maxSecurityGroupRules"}},
}

// maxImageMeta is the limit on metadata of images, which Nova passed on until 2.38.
const maxImageMeta = "maxImageMeta"

func (q *quotaResource) existsAt(v api.Version) bool { return q.until == 0 || v <= q.until }

// limitsAnswer has the resources that quotas have, by their names among limits.
func limitsAnswer(v api.Version) js.Schema {
	var absolute js.Properties
	for i := range quotaResources {
		r := &quotaResources[i]
		if !r.existsAt(v) {
			continue
		}
		for _, name := range r.max {
			if name != maxImageMeta || v < vNoImageMeta {
				absolute = append(absolute,
					members(name, described(answerInt, "-1 for no limit."))...)
			}
		}
		if r.used != "" {
			absolute = append(absolute, members(r.used, answerInt)...)
		}
	}
	return in("limits", whole(members("rate", answerNothing, "absolute", whole(absolute))))
}

// quotaAnswer is a quota set with something for each resource.
func quotaAnswer(v api.Version, of js.Schema, named bool) js.Schema {
	var set js.Properties
	if named {
		set = members("id", described(api.SchemaText, "The project."))
	}
	for _, r := range slices.SortedFunc(slices.Values(quotaResources),
		func(a, b quotaResource) int { return strings.Compare(a.name, b.name) }) {
		if r.existsAt(v) {
			set = append(set, members(r.name, of)...)
		}
	}
	return in("quota_set", whole(set))
}

var quotaLimit = described(answerInt, "-1 for no limit.")

func quotaShown(v api.Version) js.Schema { return quotaAnswer(v, quotaLimit, true) }

func quotaChanged(v api.Version) js.Schema { return quotaAnswer(v, quotaLimit, false) }

func quotaDetail(v api.Version) js.Schema {
	return quotaAnswer(v,
		whole(members("limit", quotaLimit,
			"in_use", answerInt, "reserved", described(answerInt, "Always 0."))), true)
}

func serverGroupWhole(v api.Version) js.Schema {
	p := members("id", api.SchemaUUID, "name", api.SchemaText,
		"members", described(list(api.SchemaUUID), "Its servers."))
	if v >= vGroupOwner {
		p = append(p, members("project_id", api.SchemaText, "user_id", api.SchemaText)...)
	}
	if v >= vGroupPolicy {
		return whole(
			append(p, members("policy", api.SchemaText,
				"rules", part(nil, members("max_server_per_host", answerInt)))...))
	}
	return whole(
		append(p, members("policies", described(list(api.SchemaText), "One."),
			"metadata", answerEmpty)...))
}

func serverGroupAnswer(v api.Version) js.Schema { return in("server_group", serverGroupWhole(v)) }

func serverGroupsAnswer(v api.Version) js.Schema {
	return in("server_groups", list(serverGroupWhole(v)))
}

func keyPairBrief(v api.Version) js.Properties {
	p := members("name", api.SchemaText, "public_key", api.SchemaText, "fingerprint", api.SchemaText)
	if v >= vKeyTypes {
		p = append(p, members("type", js.Schema{js.Type("string"), js.Enum("ssh", "x509")})...)
	}
	return p
}

func keyPairsAnswer(v api.Version) js.Schema {
	list := members("keypairs", list(in("keypair", whole(keyPairBrief(v)))))
	if v < vKeyPages {
		return whole(list)
	}
	return part(list, members("keypairs_links", answerNext))
}

func keyPairAnswer(v api.Version) js.Schema {
	return in("keypair", whole(
		append(keyPairBrief(v),
			members("id", answerInt, "user_id", api.SchemaText, "created_at", answerStamp,
				"deleted", described(answerBool, "Always false."),
				"deleted_at", described(answerNull, "Always null."),
				"updated_at", described(answerNull, "Always null."))...)))
}

func keyPairCreated(v api.Version) js.Schema {
	return in("keypair", part(append(keyPairBrief(v), members("user_id", api.SchemaText)...),
		members("private_key", described(api.SchemaText,
			"In PEM, if no public key was sent. It is kept nowhere."))))
}
