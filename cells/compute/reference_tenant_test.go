// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// What the reference says about flavors, key pairs, server groups, limits and quotas.
var (
	noFlavor = failure(http.StatusNotFound, "There is no such flavor, or it is not public.")
	noSpec   = failure(http.StatusNotFound, "The flavor has no such extra spec.")
	badSpec  = failure(http.StatusBadRequest,
		"No server could have the extra spec: see [extra-specs.md](extra-specs.md).")
	noKey       = failure(http.StatusNotFound, "The user has no such key pair.")
	noGroup     = failure(http.StatusNotFound, "There is no such server group, or it is another project's.")
	noteFlavors = "Flavors that are not public, or disabled, are for administrators."

	aboutListFlavors = about{
		summary:  "Lists flavors",
		notes:    []string{noteFlavors},
		answers:  ok("The flavors.", byVersion(flavorsAnswer)),
		failures: []apidoc.Failure{noMarker},
	}
	aboutListFlavorsDetail = about{
		summary:  "Lists flavors with details",
		notes:    []string{noteFlavors},
		when:     specsShown,
		answers:  ok("The flavors.", byVersion(flavorDetailsAnswer)),
		failures: []apidoc.Failure{noMarker},
	}
	aboutShowFlavor = about{
		summary:  "Shows a flavor",
		notes:    []string{noteFlavors},
		when:     specsShown,
		answers:  ok("The flavor.", byVersion(flavorAnswer)),
		failures: []apidoc.Failure{noFlavor},
	}
	aboutCreateFlavor = about{summary: "Creates a flavor", when: specsShown,
		answers:  ok("The flavor.", byVersion(flavorAnswer)),
		failures: []apidoc.Failure{failure(http.StatusConflict, "The id or the name is taken.")}}
	aboutUpdateFlavor = about{summary: "Changes the description of a flavor", when: specsShown,
		answers: ok("The flavor.", byVersion(flavorAnswer)), failures: []apidoc.Failure{noFlavor}}
	aboutDeleteFlavor = about{summary: "Deletes a flavor",
		notes:   []string{"Servers keep the flavor that they were created with."},
		answers: done(http.StatusAccepted, "Deleted."), failures: []apidoc.Failure{noFlavor}}
	specsShown = map[string]string{"os_compute_api:os-flavor-extra-specs:index": "for extra_specs, from 2.61 on"}

	aboutListExtraSpecs = about{
		summary:  "Lists the extra specs of a flavor",
		answers:  ok("The extra specs.", always(extraSpecsAnswer)),
		failures: []apidoc.Failure{noFlavor},
	}
	noteUnreadSpecs = "The header `Warning` of the answer names each extra spec that only a driver can read: " +
		"no host is chosen by it."
	aboutAddExtraSpecs = about{summary: "Adds or changes extra specs of a flavor", notes: []string{noteUnreadSpecs},
		answers:  ok("Those that were sent.", always(in("extra_specs", sentSpecs))),
		failures: []apidoc.Failure{noFlavor, badSpec}}
	aboutShowExtraSpec = about{
		summary:  "Shows an extra spec of a flavor",
		answers:  ok("The extra spec.", always(answerTexts)),
		failures: []apidoc.Failure{noFlavor, noSpec},
	}
	aboutSetExtraSpec = about{
		summary:  "Adds or changes an extra spec of a flavor",
		notes:    []string{"The member of the body has the key of the path.", noteUnreadSpecs},
		answers:  ok("The extra spec.", always(sentSpecs)),
		failures: []apidoc.Failure{noFlavor, badSpec},
	}
	aboutDeleteExtraSpec = about{
		summary:  "Deletes an extra spec of a flavor",
		answers:  done(http.StatusOK, "Deleted."),
		failures: []apidoc.Failure{noFlavor, noSpec},
	}

	noteKeys          = "Key pairs belong to users, whatever their projects. `{id}` is the name."
	aboutListKeys     = []string{noteKeys}
	aboutListKeyPairs = about{
		summary:  "Lists the key pairs of a user, by name",
		notes:    aboutListKeys,
		answers:  ok("The key pairs.", byVersion(keyPairsAnswer)),
		failures: []apidoc.Failure{noMarker},
	}
	aboutCreateKeyPair = about{
		summary: "Imports a public key, or makes a pair",
		notes: []string{noteKeys,
			"Without `public_key` a pair of the type ssh is made. A public key has at most 16 KiB."},
		answers: []apidoc.Answer{
			{Status: http.StatusOK, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "The key pair.",
				Body: byVersion(keyPairCreated)},
			{Status: http.StatusCreated, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "The key pair.",
				Body: byVersion(keyPairCreated)},
		},
		failures: []apidoc.Failure{takenName,
			failure(http.StatusForbidden, "The quota of the user is used up."),
			failure(http.StatusBadRequest, "The public key is invalid.")},
	}
	aboutShowKeyPair = about{
		summary:  "Shows a key pair",
		notes:    []string{noteKeys},
		answers:  ok("The key pair.", byVersion(keyPairAnswer)),
		failures: []apidoc.Failure{noKey},
	}
	aboutDeleteKeyPair = about{
		summary: "Deletes a key pair", notes: []string{noteKeys, "Servers that were created with it keep it."},
		failures: []apidoc.Failure{noKey},
		answers: []apidoc.Answer{
			{Status: http.StatusAccepted, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "Deleted."},
			{Status: http.StatusNoContent, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "Deleted."},
		},
	}

	aboutListServerGroups = about{summary: "Lists server groups",
		when: map[string]string{
			"os_compute_api:os-server-groups:index:all_projects": "with all_projects",
		},
		answers: ok("The server groups.", byVersion(serverGroupsAnswer))}
	aboutCreateServerGroup = about{summary: "Creates a server group",
		answers: ok("The server group.", byVersion(serverGroupAnswer)),
		notes: []string{"Servers become members when they are created with the scheduler hint `group`. `rules` " +
			"are for the policy anti-affinity alone."},
		failures: []apidoc.Failure{failure(http.StatusForbidden, "The quota is used up.")}}
	aboutShowServerGroup = about{
		summary:  "Shows a server group",
		answers:  ok("The server group.", byVersion(serverGroupAnswer)),
		failures: []apidoc.Failure{noGroup},
	}
	aboutDeleteServerGroup = about{summary: "Deletes a server group",
		notes:   []string{"Its servers stay where they are."},
		answers: done(http.StatusNoContent, "Deleted."), failures: []apidoc.Failure{noGroup}}

	aboutShowLimits = about{summary: "Shows the limits of a project, and what it has",
		when: map[string]string{
			"os_compute_api:limits:other_project": "with tenant_id",
		},
		answers: ok("The limits.", byVersion(limitsAnswer))}

	noteProject     = "`{id}` is a project. Whether it exists is not checked."
	aboutShowQuotas = about{
		summary: "Shows the quotas of a project",
		notes:   []string{noteProject},
		answers: ok("The quotas.", byVersion(quotaShown)),
	}
	aboutShowQuotasDetail = about{
		summary: "Shows the quotas of a project, and what it has",
		notes:   []string{noteProject},
		answers: ok("The quotas.", byVersion(quotaDetail)),
	}
	aboutShowQuotaDefaults = about{
		summary: "Shows the quotas of projects that have none of their own",
		notes:   []string{noteProject},
		answers: ok("The quotas.", byVersion(quotaShown)),
	}
	aboutUpdateQuotas = about{
		summary: "Sets quotas of a project",
		notes:   []string{noteProject},
		answers: ok("All quotas.", byVersion(quotaChanged)),
		failures: []apidoc.Failure{failure(http.StatusBadRequest,
			"The project has more, and force is not set; or networks are there, which have no quota.")},
	}
	aboutDeleteQuotas = about{
		summary: "Gives a project the default quotas",
		notes:   []string{noteProject},
		answers: done(http.StatusAccepted, "Done."),
	}
)
