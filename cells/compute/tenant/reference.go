// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about flavors, key pairs, server groups, limits and quotas.
var (
	noFlavor = api.Failure(http.StatusNotFound, "There is no such flavor, or it is not public.")
	noSpec   = api.Failure(http.StatusNotFound, "The flavor has no such extra spec.")
	badSpec  = api.Failure(http.StatusBadRequest,
		"No server could have the extra spec: see [extra-specs.md](extra-specs.md).")
	noKey       = api.Failure(http.StatusNotFound, "The user has no such key pair.")
	noGroup     = api.Failure(http.StatusNotFound, "There is no such server group, or it is another project's.")
	noteFlavors = "Flavors that are not public, or disabled, are for administrators."

	aboutListFlavors = api.About{
		Summary:  "Lists flavors",
		Notes:    []string{noteFlavors},
		Answers:  api.OK("The flavors.", api.ByVersion(flavorsAnswer)),
		Failures: []apidoc.Failure{api.NoMarker},
	}
	aboutListFlavorsDetail = api.About{
		Summary:  "Lists flavors with details",
		Notes:    []string{noteFlavors},
		Rules:    specsShown,
		Answers:  api.OK("The flavors.", api.ByVersion(flavorDetailsAnswer)),
		Failures: []apidoc.Failure{api.NoMarker},
	}
	aboutShowFlavor = api.About{
		Summary:  "Shows a flavor",
		Notes:    []string{noteFlavors},
		Rules:    specsShown,
		Answers:  api.OK("The flavor.", api.ByVersion(flavorAnswer)),
		Failures: []apidoc.Failure{noFlavor},
	}
	aboutCreateFlavor = api.About{Summary: "Creates a flavor", Rules: specsShown,
		Answers:  api.OK("The flavor.", api.ByVersion(flavorAnswer)),
		Failures: []apidoc.Failure{api.Failure(http.StatusConflict, "The id or the name is taken.")}}
	aboutUpdateFlavor = api.About{Summary: "Changes the description of a flavor", Rules: specsShown,
		Answers: api.OK("The flavor.", api.ByVersion(flavorAnswer)), Failures: []apidoc.Failure{noFlavor}}
	aboutDeleteFlavor = api.About{Summary: "Deletes a flavor",
		Notes:   []string{"Servers keep the flavor that they were created with."},
		Answers: api.Done(http.StatusAccepted, "Deleted."), Failures: []apidoc.Failure{noFlavor}}
	specsShown = []api.RuleUse{{Rule: ruleFlavorSpecsIndex, When: "for extra_specs, from 2.61 on"}}

	aboutListExtraSpecs = api.About{
		Summary:  "Lists the extra specs of a flavor",
		Answers:  api.OK("The extra specs.", apidoc.Always(extraSpecsAnswer)),
		Failures: []apidoc.Failure{noFlavor},
	}
	noteUnreadSpecs = "The header `Warning` of the answer names each extra spec that only a driver can read: " +
		"no host is chosen by it."
	aboutAddExtraSpecs = api.About{Summary: "Adds or changes extra specs of a flavor", Notes: []string{noteUnreadSpecs},
		Answers:  api.OK("Those that were sent.", apidoc.Always(api.In("extra_specs", sentSpecs))),
		Failures: []apidoc.Failure{noFlavor, badSpec}}
	aboutShowExtraSpec = api.About{
		Summary:  "Shows an extra spec of a flavor",
		Answers:  api.OK("The extra spec.", apidoc.Always(api.AnswerTexts)),
		Failures: []apidoc.Failure{noFlavor, noSpec},
	}
	aboutSetExtraSpec = api.About{
		Summary:  "Adds or changes an extra spec of a flavor",
		Notes:    []string{"The member of the body has the key of the path.", noteUnreadSpecs},
		Answers:  api.OK("The extra spec.", apidoc.Always(sentSpecs)),
		Failures: []apidoc.Failure{noFlavor, badSpec},
	}
	aboutDeleteExtraSpec = api.About{
		Summary:  "Deletes an extra spec of a flavor",
		Answers:  api.Done(http.StatusOK, "Deleted."),
		Failures: []apidoc.Failure{noFlavor, noSpec},
	}

	noteKeys          = "Key pairs belong to users, whatever their projects. `{id}` is the name."
	aboutListKeys     = []string{noteKeys}
	aboutListKeyPairs = api.About{
		Summary:  "Lists the key pairs of a user, by name",
		Notes:    aboutListKeys,
		Rules:    api.Rules(ruleKeyPairsIndex),
		Answers:  api.OK("The key pairs.", api.ByVersion(keyPairsAnswer)),
		Failures: []apidoc.Failure{api.NoMarker},
	}
	aboutCreateKeyPair = api.About{
		Summary: "Imports a public key, or makes a pair",
		Notes: []string{noteKeys,
			"Without `public_key` a pair of the type ssh is made. A public key has at most 16 KiB."},
		Rules: api.Rules(ruleKeyPairsCreate),
		Answers: []apidoc.Answer{
			{Status: http.StatusOK, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "The key pair.",
				Body: api.ByVersion(keyPairCreated)},
			{Status: http.StatusCreated, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "The key pair.",
				Body: api.ByVersion(keyPairCreated)},
		},
		Failures: []apidoc.Failure{api.TakenName,
			api.Failure(http.StatusForbidden, "The quota of the user is used up."),
			api.Failure(http.StatusBadRequest, "The public key is invalid.")},
	}
	aboutShowKeyPair = api.About{
		Summary:  "Shows a key pair",
		Notes:    []string{noteKeys},
		Rules:    api.Rules(ruleKeyPairsShow),
		Answers:  api.OK("The key pair.", api.ByVersion(keyPairAnswer)),
		Failures: []apidoc.Failure{noKey},
	}
	aboutDeleteKeyPair = api.About{
		Summary: "Deletes a key pair", Notes: []string{noteKeys, "Servers that were created with it keep it."},
		Rules:    api.Rules(ruleKeyPairsDelete),
		Failures: []apidoc.Failure{noKey},
		Answers: []apidoc.Answer{
			{Status: http.StatusAccepted, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "Deleted."},
			{Status: http.StatusNoContent, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "Deleted."},
		},
	}

	aboutListServerGroups = api.About{Summary: "Lists server groups",
		Rules:   []api.RuleUse{{Rule: ruleServerGroupsIndexAll, When: "with all_projects"}},
		Answers: api.OK("The server groups.", api.ByVersion(serverGroupsAnswer))}
	aboutCreateServerGroup = api.About{Summary: "Creates a server group",
		Answers: api.OK("The server group.", api.ByVersion(serverGroupAnswer)),
		Notes: []string{"Servers become members when they are created with the scheduler hint `group`. `rules` " +
			"are for the policy anti-affinity alone."},
		Failures: []apidoc.Failure{api.Failure(http.StatusForbidden, "The quota is used up.")}}
	aboutShowServerGroup = api.About{
		Summary:  "Shows a server group",
		Rules:    api.Rules(ruleServerGroupsShow),
		Answers:  api.OK("The server group.", api.ByVersion(serverGroupAnswer)),
		Failures: []apidoc.Failure{noGroup},
	}
	aboutDeleteServerGroup = api.About{Summary: "Deletes a server group",
		Notes: []string{"Its servers stay where they are."}, Rules: api.Rules(ruleServerGroupsDelete),
		Answers: api.Done(http.StatusNoContent, "Deleted."), Failures: []apidoc.Failure{noGroup}}

	aboutShowLimits = api.About{Summary: "Shows the limits of a project, and what it has",
		Rules:   []api.RuleUse{{Rule: ruleLimitsOther, When: "with tenant_id"}},
		Answers: api.OK("The limits.", api.ByVersion(limitsAnswer))}

	noteProject     = "`{id}` is a project. Whether it exists is not checked."
	aboutShowQuotas = api.About{
		Summary: "Shows the quotas of a project",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaShow),
		Answers: api.OK("The quotas.", api.ByVersion(quotaShown)),
	}
	aboutShowQuotasDetail = api.About{
		Summary: "Shows the quotas of a project, and what it has",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaDetail),
		Answers: api.OK("The quotas.", api.ByVersion(quotaDetail)),
	}
	aboutShowQuotaDefaults = api.About{
		Summary: "Shows the quotas of projects that have none of their own",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaDefaults),
		Answers: api.OK("The quotas.", api.ByVersion(quotaShown)),
	}
	aboutUpdateQuotas = api.About{
		Summary: "Sets quotas of a project",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaUpdate),
		Answers: api.OK("All quotas.", api.ByVersion(quotaChanged)),
		Failures: []apidoc.Failure{api.Failure(http.StatusBadRequest,
			"The project has more, and force is not set; or networks are there, which have no quota.")},
	}
	aboutDeleteQuotas = api.About{
		Summary: "Gives a project the default quotas",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaDelete),
		Answers: api.Done(http.StatusAccepted, "Done."),
	}
)
