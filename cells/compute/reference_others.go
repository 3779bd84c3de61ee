// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about flavors, key pairs, server groups, quotas.
var (
	noFlavor   = api.Failure(http.StatusNotFound, "There is no such flavor, or it is not public.")
	noSpec     = api.Failure(http.StatusNotFound, "The flavor has no such extra spec.")
	badSpec    = api.Failure(http.StatusBadRequest, "No server could have the extra spec: see [extra-specs.md](extra-specs.md).")
	noMarker   = api.Failure(http.StatusBadRequest, "The marker does not exist.")
	noKey      = api.Failure(http.StatusNotFound, "The user has no such key pair.")
	noGroup    = api.Failure(http.StatusNotFound, "There is no such server group, or it is another project's.")
	noHost     = api.Failure(http.StatusNotFound, "There is no such host.")
	downCell   = api.Failure(http.StatusInternalServerError, "The cell of the service is not responding: whether it was changed is not known.")
	noService  = api.Failure(http.StatusNotFound, "There is no such service.")
	takenName  = api.Failure(http.StatusConflict, "The name is taken.")
	noTreeSize = api.Failure(http.StatusServiceUnavailable, "Placement cannot be used now, so that it is not known what hypervisors have.")

	noteFlavors = "Flavors that are not public, or disabled, are for administrators."

	aboutListFlavors = api.About{
		Summary:  "Lists flavors",
		Notes:    []string{noteFlavors},
		Answers:  api.OK("The flavors.", api.ByVersion(flavorsAnswer)),
		Failures: []apidoc.Failure{noMarker},
	}
	aboutListFlavorsDetail = api.About{
		Summary:  "Lists flavors with details",
		Notes:    []string{noteFlavors},
		Rules:    specsShown,
		Answers:  api.OK("The flavors.", api.ByVersion(flavorDetailsAnswer)),
		Failures: []apidoc.Failure{noMarker},
	}
	aboutShowFlavor = api.About{
		Summary:  "Shows a flavor",
		Notes:    []string{noteFlavors},
		Rules:    specsShown,
		Answers:  api.OK("The flavor.", api.ByVersion(flavorAnswer)),
		Failures: []apidoc.Failure{noFlavor},
	}
	aboutCreateFlavor = api.About{Summary: "Creates a flavor", Rules: append(api.Rules(ruleFlavorCreate), specsShown...), Answers: api.OK("The flavor.", api.ByVersion(flavorAnswer)),
		Failures: []apidoc.Failure{api.Failure(http.StatusConflict, "The id or the name is taken.")}}
	aboutUpdateFlavor = api.About{Summary: "Changes the description of a flavor", Rules: append(api.Rules(ruleFlavorUpdate), specsShown...),
		Answers: api.OK("The flavor.", api.ByVersion(flavorAnswer)), Failures: []apidoc.Failure{noFlavor}}
	aboutDeleteFlavor = api.About{Summary: "Deletes a flavor", Notes: []string{"Servers keep the flavor that they were created with."}, Rules: api.Rules(ruleFlavorDelete),
		Answers: api.Done(http.StatusAccepted, "Deleted."), Failures: []apidoc.Failure{noFlavor}}
	specsShown = []api.RuleUse{{Rule: ruleFlavorSpecsIndex, When: "for extra_specs, from 2.61 on"}}

	aboutListExtraSpecs = api.About{
		Summary:  "Lists the extra specs of a flavor",
		Rules:    api.Rules(ruleFlavorSpecsIndex),
		Answers:  api.OK("The extra specs.", apidoc.Always(extraSpecsAnswer)),
		Failures: []apidoc.Failure{noFlavor},
	}
	noteUnreadSpecs    = "The header `Warning` of the answer names each extra spec that only a driver can read: no host is chosen by it."
	aboutAddExtraSpecs = api.About{Summary: "Adds or changes extra specs of a flavor", Notes: []string{noteUnreadSpecs}, Rules: api.Rules(ruleFlavorSpecsCreate),
		Answers: api.OK("Those that were sent.", apidoc.Always(api.In("extra_specs", sentSpecs))), Failures: []apidoc.Failure{noFlavor, badSpec}}
	aboutShowExtraSpec = api.About{
		Summary:  "Shows an extra spec of a flavor",
		Rules:    api.Rules(ruleFlavorSpecsShow),
		Answers:  api.OK("The extra spec.", apidoc.Always(api.AnswerTexts)),
		Failures: []apidoc.Failure{noFlavor, noSpec},
	}
	aboutSetExtraSpec = api.About{
		Summary:  "Adds or changes an extra spec of a flavor",
		Notes:    []string{"The member of the body has the key of the path.", noteUnreadSpecs},
		Rules:    api.Rules(ruleFlavorSpecsUpdate),
		Answers:  api.OK("The extra spec.", apidoc.Always(sentSpecs)),
		Failures: []apidoc.Failure{noFlavor, badSpec},
	}
	aboutDeleteExtraSpec = api.About{
		Summary:  "Deletes an extra spec of a flavor",
		Rules:    api.Rules(ruleFlavorSpecsDelete),
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
		Failures: []apidoc.Failure{noMarker},
	}
	aboutCreateKeyPair = api.About{
		Summary: "Imports a public key, or makes a pair",
		Notes:   []string{noteKeys, "Without `public_key` a pair of the type ssh is made. A public key has at most 16 KiB."},
		Rules:   api.Rules(ruleKeyPairsCreate),
		Answers: []apidoc.Answer{
			{Status: http.StatusOK, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "The key pair.", Body: api.ByVersion(keyPairCreated)},
			{Status: http.StatusCreated, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "The key pair.", Body: api.ByVersion(keyPairCreated)},
		},
		Failures: []apidoc.Failure{takenName, api.Failure(http.StatusForbidden, "The quota of the user is used up."), api.Failure(http.StatusBadRequest, "The public key is invalid.")},
	}
	aboutShowKeyPair = api.About{
		Summary:  "Shows a key pair",
		Notes:    []string{noteKeys},
		Rules:    api.Rules(ruleKeyPairsShow),
		Answers:  api.OK("The key pair.", api.ByVersion(keyPairAnswer)),
		Failures: []apidoc.Failure{noKey},
	}
	aboutDeleteKeyPair = api.About{
		Summary: "Deletes a key pair", Notes: []string{noteKeys, "Servers that were created with it keep it."}, Rules: api.Rules(ruleKeyPairsDelete), Failures: []apidoc.Failure{noKey},
		Answers: []apidoc.Answer{
			{Status: http.StatusAccepted, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "Deleted."},
			{Status: http.StatusNoContent, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "Deleted."},
		},
	}

	aboutListServerGroups = api.About{Summary: "Lists server groups", Rules: []api.RuleUse{{Rule: ruleServerGroupsIndex, When: ""}, {Rule: ruleServerGroupsIndexAll, When: "with all_projects"}},
		Answers: api.OK("The server groups.", api.ByVersion(serverGroupsAnswer))}
	aboutCreateServerGroup = api.About{Summary: "Creates a server group", Rules: api.Rules(ruleServerGroupsCreate), Answers: api.OK("The server group.", api.ByVersion(serverGroupAnswer)),
		Notes:    []string{"Servers become members when they are created with the scheduler hint `group`. `rules` are for the policy anti-affinity alone."},
		Failures: []apidoc.Failure{api.Failure(http.StatusForbidden, "The quota is used up.")}}
	aboutShowServerGroup = api.About{
		Summary:  "Shows a server group",
		Rules:    api.Rules(ruleServerGroupsShow),
		Answers:  api.OK("The server group.", api.ByVersion(serverGroupAnswer)),
		Failures: []apidoc.Failure{noGroup},
	}
	aboutDeleteServerGroup = api.About{Summary: "Deletes a server group", Notes: []string{"Its servers stay where they are."}, Rules: api.Rules(ruleServerGroupsDelete),
		Answers: api.Done(http.StatusNoContent, "Deleted."), Failures: []apidoc.Failure{noGroup}}

	aboutShowLimits = api.About{Summary: "Shows the limits of a project, and what it has", Rules: []api.RuleUse{{Rule: ruleLimits, When: ""}, {Rule: ruleLimitsOther, When: "with tenant_id"}},
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
		Summary:  "Sets quotas of a project",
		Notes:    []string{noteProject},
		Rules:    api.Rules(ruleQuotaUpdate),
		Answers:  api.OK("All quotas.", api.ByVersion(quotaChanged)),
		Failures: []apidoc.Failure{api.Failure(http.StatusBadRequest, "The project has more, and force is not set; or networks are there, which have no quota.")},
	}
	aboutDeleteQuotas = api.About{
		Summary: "Gives a project the default quotas",
		Notes:   []string{noteProject},
		Rules:   api.Rules(ruleQuotaDelete),
		Answers: api.Done(http.StatusAccepted, "Done."),
	}
)

// What the reference says about hosts.
var (
	aboutListZones       = api.About{Summary: "Lists availability zones", Rules: api.Rules(ruleZonesList), Answers: api.OK("The zones.", apidoc.Always(zonesAnswer))}
	aboutListZonesDetail = api.About{Summary: "Lists availability zones with their hosts", Rules: api.Rules(ruleZonesDetail), Answers: api.OK("The zones.", apidoc.Always(zoneDetailsAnswer))}

	noAggregate          = api.Failure(http.StatusNotFound, "There is no such aggregate.")
	badZone              = api.Failure(http.StatusBadRequest, "The zone of hosts would change that have servers or are in another zone; or the zone is empty.")
	hostZone             = api.Failure(http.StatusConflict, "The host is in the aggregate already, or its zone would change and it has servers.")
	aboutListAggregates  = api.About{Summary: "Lists host aggregates", Rules: api.Rules(ruleAggregatesIndex), Answers: api.OK("The aggregates.", api.ByVersion(aggregatesAnswer))}
	aboutCreateAggregate = api.About{
		Summary:  "Creates a host aggregate",
		Rules:    api.Rules(ruleAggregatesCreate),
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateCreated)),
		Failures: []apidoc.Failure{takenName},
	}
	aboutShowAggregate = api.About{
		Summary:  "Shows a host aggregate",
		Rules:    api.Rules(ruleAggregatesShow),
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate},
	}
	aboutUpdateAggregate = api.About{
		Summary:  "Changes the name or the zone of a host aggregate",
		Rules:    api.Rules(ruleAggregatesUpdate),
		Notes:    []string{"One of the two members is required."},
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate, takenName, badZone},
	}
	aboutDeleteAggregate = api.About{Summary: "Deletes a host aggregate", Rules: api.Rules(ruleAggregatesDelete), Answers: api.Done(http.StatusOK, "Deleted."),
		Failures: []apidoc.Failure{noAggregate, api.Failure(http.StatusBadRequest, "It has hosts.")}}
	aboutAddHost = api.About{Summary: "Adds a host to an aggregate", Rules: api.Rules(ruleAggregatesAddHost), Answers: api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate, noHost, hostZone}}
	aboutRemoveHost = api.About{Summary: "Removes a host from an aggregate", Rules: api.Rules(ruleAggregatesRemoveHost), Answers: api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{api.Failure(http.StatusNotFound, "There is no such aggregate, or it does not have the host."), hostZone}}
	aboutSetAggregateMetadata = api.About{
		Summary:  "Changes metadata of an aggregate; null removes an item",
		Rules:    api.Rules(ruleAggregatesSetMetadata),
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Notes:    []string{"The item `availability_zone` is the zone of its hosts."},
		Failures: []apidoc.Failure{noAggregate, badZone},
	}

	aboutListServices = api.About{Summary: "Lists the services of hosts", Rules: api.Rules(ruleServicesList), Answers: api.OK("The services.", api.ByVersion(servicesAnswer)),
		Notes: []string{"From 2.69 on, a host whose cell does not respond has a record with `binary`, `host` and a `status` of `UNKNOWN` only. Before, it is left out."}}
	aboutUpdateService = api.About{
		Summary: "Enables or disables a service, or says that its host is down",
		Rules:   api.Rules(ruleServicesUpdate),
		Answers: api.OK("The service, before 2.53 with what was sent.", api.ByVersion(serviceUpdated)),
		Notes: []string{
			"From 2.53 on `{id}` is the uuid of the service. Before, it is what to do, and the body names the service: `enable`, `disable`, `disable-log-reason` (with `disabled_reason`), " +
				"and from 2.11 on `force-down` (with `forced_down`).",
		},
		Failures: []apidoc.Failure{noService, downCell},
	}
	aboutDeleteService = api.About{
		Summary: "Forgets a host that is gone", Rules: api.Rules(ruleServicesDelete), Answers: api.Done(http.StatusNoContent, "Forgotten."),
		Notes:    []string{"`{id}` is the uuid, before 2.53 the number. The resource provider of the host stays in Placement."},
		Failures: []apidoc.Failure{noService, downCell, api.Failure(http.StatusConflict, "The host has servers, or its agent still reports to its cell.")},
	}

	noHypervisor         = api.Failure(http.StatusNotFound, "There is no such hypervisor.")
	noteCells            = "Those of cells that do not respond are left out."
	aboutListHypervisors = api.About{
		Summary:  "Lists hypervisors",
		Notes:    []string{noteCells},
		Rules:    api.Rules(ruleHypervisorsList),
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorsAnswer)),
		Failures: hypervisorFailures,
	}
	aboutListHypervisorsDetail = api.About{Summary: "Lists hypervisors with what they have", Notes: []string{noteCells}, Rules: api.Rules(ruleHypervisorsDetail),
		Answers: api.OK("The hypervisors.", api.ByVersion(hypervisorDetailsAnswer)), Failures: append(hypervisorFailures[:2:2], noTreeSize)}
	aboutHypervisorStatistics = api.About{
		Summary:  "Sums up what hypervisors have",
		Notes:    []string{noteCells + " So are those of disabled services."},
		Rules:    api.Rules(ruleHypervisorsStatistics),
		Answers:  api.OK("The sums.", apidoc.Always(statisticsAnswer)),
		Failures: []apidoc.Failure{noTreeSize},
	}
	aboutShowHypervisor = api.About{
		Summary:  "Shows a hypervisor",
		Rules:    api.Rules(ruleHypervisorsShow),
		Answers:  api.OK("The hypervisor.", api.ByVersion(hypervisorAnswer)),
		Failures: []apidoc.Failure{noHypervisor, noTreeSize},
	}
	aboutHypervisorUptime = api.About{Summary: "Shows how long a hypervisor is up: that is not known", Rules: api.Rules(ruleHypervisorsUptime),
		Failures: []apidoc.Failure{noHypervisor, api.Failure(http.StatusNotImplemented, "Always, for one that exists.")}}
	aboutSearchHypervisors = api.About{
		Summary:  "Finds hypervisors by a part of their names, {id}",
		Rules:    api.Rules(ruleHypervisorsSearch),
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorsFound)),
		Failures: []apidoc.Failure{noHypervisor},
	}
	aboutServersOfHypervisors = api.About{Summary: "Finds hypervisors by a part of their names, {id}, and shows their servers", Rules: api.Rules(ruleHypervisorsServers),
		Answers: api.OK("The hypervisors.", api.ByVersion(hypervisorServersFound)), Failures: []apidoc.Failure{noHypervisor}}
	hypervisorFailures = []apidoc.Failure{noMarker, api.Failure(http.StatusNotFound, "No hypervisor has the text in its name.")}

	aboutListMigrations = api.About{
		Summary: "Lists migrations and evacuations, the newest first", Notes: []string{noteCells},
		Rules:   []api.RuleUse{{Rule: ruleMigrationsIndex, When: ""}, {Rule: ruleMigrationsIndexAll, When: "unless the own project is named, before 2.59"}, {Rule: ruleMigrationsHosts, When: "for the names of hosts"}},
		Answers: api.OK("The migrations.", api.ByVersion(migrationsAnswer)), Failures: []apidoc.Failure{noMarker},
	}
)
