// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net/http"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi/apidoc"
)

// What the reference says about hosts.
var (
	noHost   = api.Failure(http.StatusNotFound, "There is no such host.")
	downCell = api.Failure(http.StatusInternalServerError,
		"The cell of the service is not responding: whether it was changed is not known.")
	noService  = api.Failure(http.StatusNotFound, "There is no such service.")
	noTreeSize = api.Failure(http.StatusServiceUnavailable,
		"Placement cannot be used now, so that it is not known what hypervisors have.")

	aboutListZones = api.About{Summary: "Lists availability zones",
		Answers: api.OK("The zones.", apidoc.Always(zonesAnswer))}
	aboutListZonesDetail = api.About{Summary: "Lists availability zones with their hosts",
		Answers: api.OK("The zones.", apidoc.Always(zoneDetailsAnswer))}

	noAggregate = api.Failure(http.StatusNotFound, "There is no such aggregate.")
	badZone     = api.Failure(http.StatusBadRequest,
		"The zone of hosts would change that have servers or are in another zone; or the zone is empty.")
	hostZone = api.Failure(http.StatusConflict,
		"The host is in the aggregate already, or its zone would change and it has servers.")
	aboutListAggregates = api.About{Summary: "Lists host aggregates",
		Answers: api.OK("The aggregates.", api.ByVersion(aggregatesAnswer))}
	aboutCreateAggregate = api.About{
		Summary:  "Creates a host aggregate",
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateCreated)),
		Failures: []apidoc.Failure{api.TakenName},
	}
	aboutShowAggregate = api.About{
		Summary:  "Shows a host aggregate",
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate},
	}
	aboutUpdateAggregate = api.About{
		Summary:  "Changes the name or the zone of a host aggregate",
		Notes:    []string{"One of the two members is required."},
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate, api.TakenName, badZone},
	}
	aboutDeleteAggregate = api.About{Summary: "Deletes a host aggregate", Answers: api.Done(http.StatusOK, "Deleted."),
		Failures: []apidoc.Failure{noAggregate, api.Failure(http.StatusBadRequest, "It has hosts.")}}
	aboutAddHost = api.About{Summary: "Adds a host to an aggregate",
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{noAggregate, noHost, hostZone}}
	aboutRemoveHost = api.About{Summary: "Removes a host from an aggregate",
		Answers: api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Failures: []apidoc.Failure{api.Failure(http.StatusNotFound,
			"There is no such aggregate, or it does not have the host."), hostZone}}
	aboutSetAggregateMetadata = api.About{
		Summary:  "Changes metadata of an aggregate; null removes an item",
		Answers:  api.OK("The aggregate.", api.ByVersion(aggregateAnswer)),
		Notes:    []string{"The item `availability_zone` is the zone of its hosts."},
		Failures: []apidoc.Failure{noAggregate, badZone},
	}

	aboutListServices = api.About{Summary: "Lists the services of hosts",
		Answers: api.OK("The services.", api.ByVersion(servicesAnswer)),
		Notes: []string{"From 2.69 on, a host whose cell does not respond has a record with `binary`, `host` and " +
			"a `status` of `UNKNOWN` only. Before, it is left out."}}
	aboutUpdateService = api.About{
		Summary: "Enables or disables a service, or says that its host is down",
		Rules:   api.Rules(ruleServicesUpdate),
		Answers: api.OK("The service, before 2.53 with what was sent.", api.ByVersion(serviceUpdated)),
		Notes: []string{
			"From 2.53 on `{id}` is the uuid of the service. Before, it is what to do, and the body names the " +
				"service: `enable`, `disable`, `disable-log-reason` (with `disabled_reason`), " +
				"and from 2.11 on `force-down` (with `forced_down`).",
		},
		Failures: []apidoc.Failure{noService, downCell},
	}
	aboutDeleteService = api.About{
		Summary: "Forgets a host that is gone", Answers: api.Done(http.StatusNoContent, "Forgotten."),
		Notes: []string{"`{id}` is the uuid, before 2.53 the number. The resource provider of the host stays " +
			"in Placement."},
		Failures: []apidoc.Failure{noService, downCell,
			api.Failure(http.StatusConflict, "The host has servers, or its agent still reports to its cell.")},
	}

	noHypervisor         = api.Failure(http.StatusNotFound, "There is no such hypervisor.")
	noteCells            = "Those of cells that do not respond are left out."
	aboutListHypervisors = api.About{
		Summary:  "Lists hypervisors",
		Notes:    []string{noteCells},
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorsAnswer)),
		Failures: hypervisorFailures,
	}
	aboutListHypervisorsDetail = api.About{Summary: "Lists hypervisors with what they have", Notes: []string{noteCells},
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorDetailsAnswer)),
		Failures: append(hypervisorFailures[:2:2], noTreeSize)}
	aboutHypervisorStatistics = api.About{
		Summary:  "Sums up what hypervisors have",
		Notes:    []string{noteCells + " So are those of disabled services."},
		Answers:  api.OK("The sums.", apidoc.Always(statisticsAnswer)),
		Failures: []apidoc.Failure{noTreeSize},
	}
	aboutShowHypervisor = api.About{
		Summary:  "Shows a hypervisor",
		Answers:  api.OK("The hypervisor.", api.ByVersion(hypervisorAnswer)),
		Failures: []apidoc.Failure{noHypervisor, noTreeSize},
	}
	aboutHypervisorUptime = api.About{Summary: "Shows how long a hypervisor is up: that is not known",
		Failures: []apidoc.Failure{noHypervisor,
			api.Failure(http.StatusNotImplemented, "Always, for one that exists.")}}
	aboutSearchHypervisors = api.About{
		Summary:  "Finds hypervisors by a part of their names, {id}",
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorsFound)),
		Failures: []apidoc.Failure{noHypervisor},
	}
	aboutServersOfHypervisors = api.About{
		Summary:  "Finds hypervisors by a part of their names, {id}, and shows their servers",
		Answers:  api.OK("The hypervisors.", api.ByVersion(hypervisorServersFound)),
		Failures: []apidoc.Failure{noHypervisor},
	}
	hypervisorFailures = []apidoc.Failure{api.NoMarker,
		api.Failure(http.StatusNotFound, "No hypervisor has the text in its name.")}

	aboutListMigrations = api.About{
		Summary: "Lists migrations and evacuations, the newest first", Notes: []string{noteCells},
		Rules: []api.RuleUse{{Rule: ruleMigrationsIndex, When: ""},
			{Rule: ruleMigrationsIndexAll, When: "unless the own project is named, before 2.59"},
			{Rule: ruleMigrationsHosts, When: "for the names of hosts"}},
		Answers: api.OK("The migrations.", api.ByVersion(migrationsAnswer)), Failures: []apidoc.Failure{api.NoMarker},
	}
)
