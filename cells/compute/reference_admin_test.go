// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"

	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// What the reference says about hosts.
var (
	noHost      = failure(http.StatusNotFound, "There is no such host.")
	downService = failure(http.StatusInternalServerError,
		"The cell of the service is not responding: whether it was changed is not known.")
	noService  = failure(http.StatusNotFound, "There is no such service.")
	noTreeSize = failure(http.StatusServiceUnavailable,
		"Placement cannot be used now, so that it is not known what hypervisors have.")

	aboutListZones = about{summary: "Lists availability zones",
		answers: ok("The zones.", always(zonesAnswer))}
	aboutListZonesDetail = about{summary: "Lists availability zones with their hosts",
		answers: ok("The zones.", always(zoneDetailsAnswer))}

	noAggregate = failure(http.StatusNotFound, "There is no such aggregate.")
	badZone     = failure(http.StatusBadRequest,
		"The zone of hosts would change that have servers or are in another zone; or the zone is empty.")
	hostZone = failure(http.StatusConflict,
		"The host is in the aggregate already, or its zone would change and it has servers.")
	aboutListAggregates = about{summary: "Lists host aggregates",
		answers: ok("The aggregates.", byVersion(aggregatesAnswer))}
	aboutCreateAggregate = about{
		summary:  "Creates a host aggregate",
		answers:  ok("The aggregate.", byVersion(aggregateCreated)),
		failures: []apidoc.Failure{takenName},
	}
	aboutShowAggregate = about{
		summary:  "Shows a host aggregate",
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate},
	}
	aboutUpdateAggregate = about{
		summary:  "Changes the name or the zone of a host aggregate",
		notes:    []string{"One of the two members is required."},
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate, takenName, badZone},
	}
	aboutDeleteAggregate = about{summary: "Deletes a host aggregate", answers: done(http.StatusOK, "Deleted."),
		failures: []apidoc.Failure{noAggregate, failure(http.StatusBadRequest, "It has hosts.")}}
	aboutAddHost = about{summary: "Adds a host to an aggregate",
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{noAggregate, noHost, hostZone}}
	aboutRemoveHost = about{summary: "Removes a host from an aggregate",
		answers: ok("The aggregate.", byVersion(aggregateAnswer)),
		failures: []apidoc.Failure{failure(http.StatusNotFound,
			"There is no such aggregate, or it does not have the host."), hostZone}}
	aboutSetAggregateMetadata = about{
		summary:  "Changes metadata of an aggregate; null removes an item",
		answers:  ok("The aggregate.", byVersion(aggregateAnswer)),
		notes:    []string{"The item `availability_zone` is the zone of its hosts."},
		failures: []apidoc.Failure{noAggregate, badZone},
	}

	aboutListServices = about{summary: "Lists the services of hosts",
		answers: ok("The services.", byVersion(servicesAnswer)),
		notes: []string{"From 2.69 on, a host whose cell does not respond has a record with `binary`, `host` and " +
			"a `status` of `UNKNOWN` only. Before, it is left out."}}
	aboutUpdateService = about{
		summary: "Enables or disables a service, or says that its host is down",
		answers: ok("The service, before 2.53 with what was sent.", byVersion(serviceUpdated)),
		notes: []string{
			"From 2.53 on `{id}` is the uuid of the service. Before, it is what to do, and the body names the " +
				"service: `enable`, `disable`, `disable-log-reason` (with `disabled_reason`), " +
				"and from 2.11 on `force-down` (with `forced_down`).",
		},
		failures: []apidoc.Failure{noService, downService},
	}
	aboutDeleteService = about{
		summary: "Forgets a host that is gone", answers: done(http.StatusNoContent, "Forgotten."),
		notes: []string{"`{id}` is the uuid, before 2.53 the number. The resource provider of the host stays " +
			"in Placement."},
		failures: []apidoc.Failure{noService, downService,
			failure(http.StatusConflict, "The host has servers, or its agent still reports to its cell.")},
	}

	noHypervisor         = failure(http.StatusNotFound, "There is no such hypervisor.")
	noteCells            = "Those of cells that do not respond are left out."
	aboutListHypervisors = about{
		summary:  "Lists hypervisors",
		notes:    []string{noteCells},
		answers:  ok("The hypervisors.", byVersion(hypervisorsAnswer)),
		failures: hypervisorFailures,
	}
	aboutListHypervisorsDetail = about{summary: "Lists hypervisors with what they have", notes: []string{noteCells},
		answers:  ok("The hypervisors.", byVersion(hypervisorDetailsAnswer)),
		failures: append(hypervisorFailures[:2:2], noTreeSize)}
	aboutHypervisorStatistics = about{
		summary:  "Sums up what hypervisors have",
		notes:    []string{noteCells + " So are those of disabled services."},
		answers:  ok("The sums.", always(statisticsAnswer)),
		failures: []apidoc.Failure{noTreeSize},
	}
	aboutShowHypervisor = about{
		summary:  "Shows a hypervisor",
		answers:  ok("The hypervisor.", byVersion(hypervisorAnswer)),
		failures: []apidoc.Failure{noHypervisor, noTreeSize},
	}
	aboutHypervisorUptime = about{summary: "Shows how long a hypervisor is up: that is not known",
		failures: []apidoc.Failure{noHypervisor,
			failure(http.StatusNotImplemented, "Always, for one that exists.")}}
	aboutSearchHypervisors = about{
		summary:  "Finds hypervisors by a part of their names, {id}",
		answers:  ok("The hypervisors.", byVersion(hypervisorsFound)),
		failures: []apidoc.Failure{noHypervisor},
	}
	aboutServersOfHypervisors = about{
		summary:  "Finds hypervisors by a part of their names, {id}, and shows their servers",
		answers:  ok("The hypervisors.", byVersion(hypervisorServersFound)),
		failures: []apidoc.Failure{noHypervisor},
	}
	hypervisorFailures = []apidoc.Failure{noMarker,
		failure(http.StatusNotFound, "No hypervisor has the text in its name.")}

	aboutListMigrations = about{
		summary: "Lists migrations and evacuations, the newest first", notes: []string{noteCells},
		when: map[string]string{
			"os_compute_api:os-migrations:index:all_projects": "unless the own project is named, before 2.59",
			"os_compute_api:os-migrations:index:host":         "for the names of hosts",
		},
		answers: ok("The migrations.", byVersion(migrationsAnswer)), failures: []apidoc.Failure{noMarker},
	}
)
