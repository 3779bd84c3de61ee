// SPDX-License-Identifier: Apache-2.0

package compute

import "github.com/compute-agent/compute-agent/cells/compute/api"

// The microversions that several files ask for by name; others are where their calls are.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators; delete_on_termination of volumes
	vFilterIPv6         api.Version = 5  // members may filter by ip6
	vLocked             api.Version = 9  // servers say whether they are locked
	vForcedDown         api.Version = 11 // services can be forced down
	vStorageFound       api.Version = 14 // a destination of an evacuation finds out whether storage is shared
	vHostStatus         api.Version = 16 // servers say how their host is
	vDescription        api.Version = 19 // of servers
	vActionsOfDeleted   api.Version = 21 // actions of deleted servers are shown
	vTags               api.Version = 26 // of servers, and filters by them
	vCPUInfo            api.Version = 28 // of hypervisors, as an object
	vAbort              api.Version = 24 // DELETE /servers/{id}/migrations/{migration}
	vMigrationTypes     api.Version = 23 // lists of migrations say of which type each is; those of a server
	vForcedEvacuation   api.Version = 29 // to a host that is not checked
	vHypervisorPages    api.Version = 33 // lists of hypervisors have pages
	vNetworksRequired   api.Version = 37 // on create
	vStatusChecked      api.Version = 38 // an invalid status is rejected
	vFlavorEmbedded     api.Version = 47 // the flavor of a server is shown as it was
	vActionEvents       api.Version = 51 // members see the events of actions, but for their tracebacks
	vServiceUUID        api.Version = 53 // services go by their uuid
	vMigrateToHost      api.Version = 56 // migrate names a host
	vActionPages        api.Version = 58 // lists of actions have pages, filters and updated_at
	vMigrationPages     api.Version = 59 // lists of migrations have pages, uuids and changes-since
	vActionHost         api.Version = 62 // events of actions have a host
	vTrustedCerts       api.Version = 63 // trusted_image_certificates
	vChangesBefore      api.Version = 66 // a filter
	vNoForcedMoves      api.Version = 68 // hosts that are named are always checked
	vDownCells          api.Version = 69 // minimal records
	vShowGroups         api.Version = 71 // servers say in which groups they are
)
