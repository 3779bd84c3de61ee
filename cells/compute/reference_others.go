// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about flavors, key pairs, server groups, quotas.
var (
	noFlavor   = failure(http.StatusNotFound, "There is no such flavor, or it is not public.")
	noSpec     = failure(http.StatusNotFound, "The flavor has no such extra spec.")
	badSpec    = failure(http.StatusBadRequest, "No server could have the extra spec: see [extra-specs.md](extra-specs.md).")
	noMarker   = failure(http.StatusBadRequest, "The marker does not exist.")
	noKey      = failure(http.StatusNotFound, "The user has no such key pair.")
	noGroup    = failure(http.StatusNotFound, "There is no such server group, or it is another project's.")
	noHost     = failure(http.StatusNotFound, "There is no such host.")
	downCell   = failure(http.StatusInternalServerError, "The cell of the service is not responding: whether it was changed is not known.")
	noService  = failure(http.StatusNotFound, "There is no such service.")
	takenName  = failure(http.StatusConflict, "The name is taken.")
	noTreeSize = failure(http.StatusServiceUnavailable, "Placement cannot be used now, so that it is not known what hypervisors have.")

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
		rules:    specsShown,
		answers:  ok("The flavors.", byVersion(flavorDetailsAnswer)),
		failures: []apidoc.Failure{noMarker},
	}
	aboutShowFlavor = about{
		summary:  "Shows a flavor",
		notes:    []string{noteFlavors},
		rules:    specsShown,
		answers:  ok("The flavor.", byVersion(flavorAnswer)),
		failures: []apidoc.Failure{noFlavor},
	}
	aboutCreateFlavor = about{summary: "Creates a flavor", rules: append(rules(ruleFlavorCreate), specsShown...), answers: ok("The flavor.", byVersion(flavorAnswer)),
		failures: []apidoc.Failure{failure(http.StatusConflict, "The id or the name is taken.")}}
	aboutUpdateFlavor = about{summary: "Changes the description of a flavor", rules: append(rules(ruleFlavorUpdate), specsShown...),
		answers: ok("The flavor.", byVersion(flavorAnswer)), failures: []apidoc.Failure{noFlavor}}
	aboutDeleteFlavor = about{summary: "Deletes a flavor", notes: []string{"Servers keep the flavor that they were created with."}, rules: rules(ruleFlavorDelete),
		answers: done(http.StatusAccepted, "Deleted."), failures: []apidoc.Failure{noFlavor}}
	specsShown = []ruleUse{{ruleFlavorSpecsIndex, "for extra_specs, from 2.61 on"}}

	aboutListExtraSpecs = about{
		summary:  "Lists the extra specs of a flavor",
		rules:    rules(ruleFlavorSpecsIndex),
		answers:  ok("The extra specs.", always(extraSpecsAnswer)),
		failures: []apidoc.Failure{noFlavor},
	}
	noteUnreadSpecs    = "The header `Warning` of the answer names each extra spec that only a driver can read: no host is chosen by it."
	aboutAddExtraSpecs = about{summary: "Adds or changes extra specs of a flavor", notes: []string{noteUnreadSpecs}, rules: rules(ruleFlavorSpecsCreate),
		answers: ok("Those that were sent.", always(in("extra_specs", sentSpecs))), failures: []apidoc.Failure{noFlavor, badSpec}}
	aboutShowExtraSpec = about{
		summary:  "Shows an extra spec of a flavor",
		rules:    rules(ruleFlavorSpecsShow),
		answers:  ok("The extra spec.", always(answerTexts)),
		failures: []apidoc.Failure{noFlavor, noSpec},
	}
	aboutSetExtraSpec = about{
		summary:  "Adds or changes an extra spec of a flavor",
		notes:    []string{"The member of the body has the key of the path.", noteUnreadSpecs},
		rules:    rules(ruleFlavorSpecsUpdate),
		answers:  ok("The extra spec.", always(sentSpecs)),
		failures: []apidoc.Failure{noFlavor, badSpec},
	}
	aboutDeleteExtraSpec = about{
		summary:  "Deletes an extra spec of a flavor",
		rules:    rules(ruleFlavorSpecsDelete),
		answers:  done(http.StatusOK, "Deleted."),
		failures: []apidoc.Failure{noFlavor, noSpec},
	}

	noteKeys          = "Key pairs belong to users, whatever their projects. `{id}` is the name."
	aboutListKeys     = []string{noteKeys}
	aboutListKeyPairs = about{
		summary:  "Lists the key pairs of a user, by name",
		notes:    aboutListKeys,
		rules:    rules(ruleKeyPairsIndex),
		answers:  ok("The key pairs.", byVersion(keyPairsAnswer)),
		failures: []apidoc.Failure{noMarker},
	}
	aboutCreateKeyPair = about{
		summary: "Imports a public key, or makes a pair",
		notes:   []string{noteKeys, "Without `public_key` a pair of the type ssh is made. A public key has at most 16 KiB."},
		rules:   rules(ruleKeyPairsCreate),
		answers: []apidoc.Answer{
			{Status: http.StatusOK, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "The key pair.", Body: byVersion(keyPairCreated)},
			{Status: http.StatusCreated, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "The key pair.", Body: byVersion(keyPairCreated)},
		},
		failures: []apidoc.Failure{takenName, failure(http.StatusForbidden, "The quota of the user is used up."), failure(http.StatusBadRequest, "The public key is invalid.")},
	}
	aboutShowKeyPair = about{
		summary:  "Shows a key pair",
		notes:    []string{noteKeys},
		rules:    rules(ruleKeyPairsShow),
		answers:  ok("The key pair.", byVersion(keyPairAnswer)),
		failures: []apidoc.Failure{noKey},
	}
	aboutDeleteKeyPair = about{
		summary: "Deletes a key pair", notes: []string{noteKeys, "Servers that were created with it keep it."}, rules: rules(ruleKeyPairsDelete), failures: []apidoc.Failure{noKey},
		answers: []apidoc.Answer{
			{Status: http.StatusAccepted, Versions: apidoc.Versions{Until: int(vKeyTypes) - 1}, Text: "Deleted."},
			{Status: http.StatusNoContent, Versions: apidoc.Versions{Since: int(vKeyTypes)}, Text: "Deleted."},
		},
	}

	aboutListServerGroups = about{summary: "Lists server groups", rules: []ruleUse{{ruleServerGroupsIndex, ""}, {ruleServerGroupsIndexAll, "with all_projects"}},
		answers: ok("The server groups.", byVersion(serverGroupsAnswer))}
	aboutCreateServerGroup = about{summary: "Creates a server group", rules: rules(ruleServerGroupsCreate), answers: ok("The server group.", byVersion(serverGroupAnswer)),
		notes:    []string{"Servers become members when they are created with the scheduler hint `group`. `rules` are for the policy anti-affinity alone."},
		failures: []apidoc.Failure{failure(http.StatusForbidden, "The quota is used up.")}}
	aboutShowServerGroup = about{
		summary:  "Shows a server group",
		rules:    rules(ruleServerGroupsShow),
		answers:  ok("The server group.", byVersion(serverGroupAnswer)),
		failures: []apidoc.Failure{noGroup},
	}
	aboutDeleteServerGroup = about{summary: "Deletes a server group", notes: []string{"Its servers stay where they are."}, rules: rules(ruleServerGroupsDelete),
		answers: done(http.StatusNoContent, "Deleted."), failures: []apidoc.Failure{noGroup}}

	aboutShowLimits = about{summary: "Shows the limits of a project, and what it has", rules: []ruleUse{{ruleLimits, ""}, {ruleLimitsOther, "with tenant_id"}},
		answers: ok("The limits.", byVersion(limitsAnswer))}

	noteProject     = "`{id}` is a project. Whether it exists is not checked."
	aboutShowQuotas = about{
		summary: "Shows the quotas of a project",
		notes:   []string{noteProject},
		rules:   rules(ruleQuotaShow),
		answers: ok("The quotas.", byVersion(quotaShown)),
	}
	aboutShowQuotasDetail = about{
		summary: "Shows the quotas of a project, and what it has",
		notes:   []string{noteProject},
		rules:   rules(ruleQuotaDetail),
		answers: ok("The quotas.", byVersion(quotaDetail)),
	}
	aboutShowQuotaDefaults = about{
		summary: "Shows the quotas of projects that have none of their own",
		notes:   []string{noteProject},
		rules:   rules(ruleQuotaDefaults),
		answers: ok("The quotas.", byVersion(quotaShown)),
	}
	aboutUpdateQuotas = about{
		summary:  "Sets quotas of a project",
		notes:    []string{noteProject},
		rules:    rules(ruleQuotaUpdate),
		answers:  ok("All quotas.", byVersion(quotaChanged)),
		failures: []apidoc.Failure{failure(http.StatusBadRequest, "The project has more, and force is not set; or networks are there, which have no quota.")},
	}
	aboutDeleteQuotas = about{
		summary: "Gives a project the default quotas",
		notes:   []string{noteProject},
		rules:   rules(ruleQuotaDelete),
		answers: done(http.StatusAccepted, "Done."),
	}
)

// What the reference says about hosts.
var (
	aboutListZones       = about{summary: "Lists availability zones", rules: rules(ruleZonesList), answers: ok("The zones.", always(zonesAnswer))}
	aboutListZonesDetail = about{summary: "Lists availability zones with their hosts", rules: rules(ruleZonesDetail), answers: ok("The zones.", always(zoneDetailsAnswer))}

	noAggregate          = failure(http.StatusNotFound, "There is no such aggregate.")
	badZone              = failure(http.StatusBadRequest, "The zone of hosts would change that have servers or are in another zone; or the zone is empty.")
	hostZone             = failure(http.StatusConflict, "The host is in the aggregate already, or its zone would change and it has servers.")
	aboutListAggregates  = about{summary: "Lists host aggregates", rules: rules(ruleAggregatesIndex), answers: ok("The aggregates.", byVersion(aggregatesAnswer))}
	aboutCreateAggregate = about{
		summary:  "Creates a host aggregate",
		rules:    rules(ruleAggregatesCreate),
		answers:  ok("The aggregate.", byVersion(aggregateCreated)),
		failures: []apidoc.Failure{takenName},
	}
	aboutShowAggregate = about{
		summary:  "Shows a host aggregate",
		rules:    rules(ruleAggregatesShow),
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate},
	}
	aboutUpdateAggregate = about{
		summary:  "Changes the name or the zone of a host aggregate",
		rules:    rules(ruleAggregatesUpdate),
		notes:    []string{"One of the two members is required."},
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate, takenName, badZone},
	}
	aboutDeleteAggregate = about{summary: "Deletes a host aggregate", rules: rules(ruleAggregatesDelete), answers: done(http.StatusOK, "Deleted."),
		failures: []apidoc.Failure{noAggregate, failure(http.StatusBadRequest, "It has hosts.")}}
	aboutAddHost = about{summary: "Adds a host to an aggregate", rules: rules(ruleAggregatesAddHost), answers: ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate, noHost, hostZone}}
	aboutRemoveHost = about{summary: "Removes a host from an aggregate", rules: rules(ruleAggregatesRemoveHost), answers: ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{failure(http.StatusNotFound, "There is no such aggregate, or it does not have the host."), hostZone}}
	aboutSetAggregateMetadata = about{
		summary:  "Changes metadata of an aggregate; null removes an item",
		rules:    rules(ruleAggregatesSetMetadata),
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		notes:    []string{"The item `availability_zone` is the zone of its hosts."},
		failures: []apidoc.Failure{noAggregate, badZone},
	}

	aboutListServices = about{summary: "Lists the services of hosts", rules: rules(ruleServicesList), answers: ok("The services.", byVersion(servicesAnswer)),
		notes: []string{"From 2.69 on, a host whose cell does not respond has a record with `binary`, `host` and a `status` of `UNKNOWN` only. Before, it is left out."}}
	aboutUpdateService = about{
		summary: "Enables or disables a service, or says that its host is down",
		rules:   rules(ruleServicesUpdate),
		answers: ok("The service, before 2.53 with what was sent.", byVersion(serviceUpdated)),
		notes: []string{
			"From 2.53 on `{id}` is the uuid of the service. Before, it is what to do, and the body names the service: `enable`, `disable`, `disable-log-reason` (with `disabled_reason`), " +
				"and from 2.11 on `force-down` (with `forced_down`).",
		},
		failures: []apidoc.Failure{noService, downCell},
	}
	aboutDeleteService = about{
		summary: "Forgets a host that is gone", rules: rules(ruleServicesDelete), answers: done(http.StatusNoContent, "Forgotten."),
		notes:    []string{"`{id}` is the uuid, before 2.53 the number. The resource provider of the host stays in Placement."},
		failures: []apidoc.Failure{noService, downCell, failure(http.StatusConflict, "The host has servers, or its agent still reports to its cell.")},
	}

	noHypervisor         = failure(http.StatusNotFound, "There is no such hypervisor.")
	noteCells            = "Those of cells that do not respond are left out."
	aboutListHypervisors = about{
		summary:  "Lists hypervisors",
		notes:    []string{noteCells},
		rules:    rules(ruleHypervisorsList),
		answers:  ok("The hypervisors.", byVersion(hypervisorsAnswer)),
		failures: hypervisorFailures,
	}
	aboutListHypervisorsDetail = about{summary: "Lists hypervisors with what they have", notes: []string{noteCells}, rules: rules(ruleHypervisorsDetail),
		answers: ok("The hypervisors.", byVersion(hypervisorDetailsAnswer)), failures: append(hypervisorFailures[:2:2], noTreeSize)}
	aboutHypervisorStatistics = about{
		summary:  "Sums up what hypervisors have",
		notes:    []string{noteCells + " So are those of disabled services."},
		rules:    rules(ruleHypervisorsStatistics),
		answers:  ok("The sums.", always(statisticsAnswer)),
		failures: []apidoc.Failure{noTreeSize},
	}
	aboutShowHypervisor = about{
		summary:  "Shows a hypervisor",
		rules:    rules(ruleHypervisorsShow),
		answers:  ok("The hypervisor.", byVersion(hypervisorAnswer)),
		failures: []apidoc.Failure{noHypervisor, noTreeSize},
	}
	aboutHypervisorUptime = about{summary: "Shows how long a hypervisor is up: that is not known", rules: rules(ruleHypervisorsUptime),
		failures: []apidoc.Failure{noHypervisor, failure(http.StatusNotImplemented, "Always, for one that exists.")}}
	aboutSearchHypervisors = about{
		summary:  "Finds hypervisors by a part of their names, {id}",
		rules:    rules(ruleHypervisorsSearch),
		answers:  ok("The hypervisors.", byVersion(hypervisorsFound)),
		failures: []apidoc.Failure{noHypervisor},
	}
	aboutServersOfHypervisors = about{summary: "Finds hypervisors by a part of their names, {id}, and shows their servers", rules: rules(ruleHypervisorsServers),
		answers: ok("The hypervisors.", byVersion(hypervisorServersFound)), failures: []apidoc.Failure{noHypervisor}}
	hypervisorFailures = []apidoc.Failure{noMarker, failure(http.StatusNotFound, "No hypervisor has the text in its name.")}

	aboutListMigrations = about{
		summary: "Lists migrations and evacuations, the newest first", notes: []string{noteCells},
		rules:   []ruleUse{{ruleMigrationsIndex, ""}, {ruleMigrationsIndexAll, "unless the own project is named, before 2.59"}, {ruleMigrationsHosts, "for the names of hosts"}},
		answers: ok("The migrations.", byVersion(migrationsAnswer)), failures: []apidoc.Failure{noMarker},
	}
)
