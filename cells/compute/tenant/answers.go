// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// The schemas of answers, for the reference and the OpenAPI document.

func flavorBrief(v api.Version) js.Properties {
	p := apidoc.Members("id", api.SchemaText, "name", api.SchemaText, "links", api.AnswerLinks)
	if v >= vFlavorDescription {
		p = append(p, apidoc.Members("description", apidoc.OrNull("string"))...)
	}
	return p
}

func flavorWhole(v api.Version) js.Schema {
	p := append(flavorBrief(v), apidoc.Members(
		"ram", apidoc.Described(api.AnswerInt, "In MiB."),
		"disk", apidoc.Described(api.AnswerInt, "In GiB."), "vcpus", api.AnswerInt,
		"swap", apidoc.Described(js.Schema{js.Type("integer", "string")}, "In MiB; an empty string for none."),
		"OS-FLV-EXT-DATA:ephemeral", apidoc.Described(api.AnswerInt, "In GiB."),
		"OS-FLV-DISABLED:disabled", api.AnswerBool, "os-flavor-access:is_public", api.AnswerBool,
		"rxtx_factor", apidoc.Described(js.Schema{js.Type("number", "string")},
			"An empty string for none. It has no effect."),
	)...)
	if v < vFlavorSpecs {
		return apidoc.Whole(p)
	}
	return api.Part(p, apidoc.Members("extra_specs", apidoc.Described(api.AnswerTexts,
		"For those whom the policy os-flavor-extra-specs:index allows.")))
}

func flavorAnswer(v api.Version) js.Schema { return api.In("flavor", flavorWhole(v)) }

func flavorsAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("flavors", apidoc.List(apidoc.Whole(flavorBrief(v)))),
		apidoc.Members("flavors_links", api.AnswerNext))
}

func flavorDetailsAnswer(v api.Version) js.Schema {
	return api.Part(apidoc.Members("flavors", apidoc.List(flavorWhole(v))),
		apidoc.Members("flavors_links", api.AnswerNext))
}

var (
	extraSpecsAnswer = api.In("extra_specs", api.AnswerTexts)
	sentSpecs        = apidoc.Described(
		js.Schema{js.Type("object"), js.PatternProperties(api.AnyKey, js.Schema{js.Type("string", "number")})},
		"As they were sent.")
)

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
					apidoc.Members(name, apidoc.Described(api.AnswerInt, "-1 for no limit."))...)
			}
		}
		if r.used != "" {
			absolute = append(absolute, apidoc.Members(r.used, api.AnswerInt)...)
		}
	}
	return api.In("limits", apidoc.Whole(apidoc.Members("rate", api.AnswerNothing, "absolute", apidoc.Whole(absolute))))
}

// quotaAnswer is a quota set with something for each resource.
func quotaAnswer(v api.Version, of js.Schema, named bool) js.Schema {
	var set js.Properties
	if named {
		set = apidoc.Members("id", apidoc.Described(api.SchemaText, "The project."))
	}
	for i := range sortedResources {
		if r := &sortedResources[i]; r.existsAt(v) {
			set = append(set, apidoc.Members(r.name, of)...)
		}
	}
	return api.In("quota_set", apidoc.Whole(set))
}

var quotaLimit = apidoc.Described(api.AnswerInt, "-1 for no limit.")

func quotaShown(v api.Version) js.Schema { return quotaAnswer(v, quotaLimit, true) }

func quotaChanged(v api.Version) js.Schema { return quotaAnswer(v, quotaLimit, false) }

func quotaDetail(v api.Version) js.Schema {
	return quotaAnswer(v,
		apidoc.Whole(apidoc.Members("limit", quotaLimit,
			"in_use", api.AnswerInt, "reserved", apidoc.Described(api.AnswerInt, "Always 0."))), true)
}

func serverGroupWhole(v api.Version) js.Schema {
	p := apidoc.Members("id", api.SchemaUUID, "name", api.SchemaText,
		"members", apidoc.Described(apidoc.List(api.SchemaUUID), "Its servers."))
	if v >= vGroupOwner {
		p = append(p, apidoc.Members("project_id", api.SchemaText, "user_id", api.SchemaText)...)
	}
	if v >= vGroupPolicy {
		return apidoc.Whole(
			append(p, apidoc.Members("policy", api.SchemaText,
				"rules", api.Part(nil, apidoc.Members(maxPerHost, api.AnswerInt)))...))
	}
	return apidoc.Whole(
		append(p, apidoc.Members("policies", apidoc.Described(apidoc.List(api.SchemaText), "One."),
			"metadata", api.AnswerEmpty)...))
}

func serverGroupAnswer(v api.Version) js.Schema { return api.In("server_group", serverGroupWhole(v)) }

func serverGroupsAnswer(v api.Version) js.Schema {
	return api.In("server_groups", apidoc.List(serverGroupWhole(v)))
}

func keyPairBrief(v api.Version) js.Properties {
	p := apidoc.Members("name", api.SchemaText, "public_key", api.SchemaText, "fingerprint", api.SchemaText)
	if v >= vKeyTypes {
		p = append(p, apidoc.Members("type", js.Schema{js.Type("string"), js.Enum("ssh", "x509")})...)
	}
	return p
}

func keyPairsAnswer(v api.Version) js.Schema {
	list := apidoc.Members("keypairs", apidoc.List(api.In("keypair", apidoc.Whole(keyPairBrief(v)))))
	if v < vKeyPages {
		return apidoc.Whole(list)
	}
	return api.Part(list, apidoc.Members("keypairs_links", api.AnswerNext))
}

func keyPairAnswer(v api.Version) js.Schema {
	return api.In("keypair", apidoc.Whole(
		append(keyPairBrief(v),
			apidoc.Members("id", api.AnswerInt, "user_id", api.SchemaText, "created_at", api.AnswerStamp,
				"deleted", apidoc.Described(api.AnswerBool, "Always false."),
				"deleted_at", apidoc.Described(api.AnswerNull, "Always null."),
				"updated_at", apidoc.Described(api.AnswerNull, "Always null."))...)))
}

func keyPairCreated(v api.Version) js.Schema {
	return api.In("keypair", api.Part(append(keyPairBrief(v), apidoc.Members("user_id", api.SchemaText)...),
		apidoc.Members("private_key", apidoc.Described(api.SchemaText,
			"In PEM, if no public key was sent. It is kept nowhere."))))
}
