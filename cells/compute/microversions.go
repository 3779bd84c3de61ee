// SPDX-License-Identifier: Apache-2.0

package compute

import "github.com/compute-agent/compute-agent/cells/compute/api"

// The microversions that several files ask for by name; others are where their calls are.
const (
	vExtendedAttributes api.Version = 3  // all attributes for administrators; delete_on_termination of volumes
	vFilterIPv6         api.Version = 5  // members may filter by ip6
	vLocked             api.Version = 9  // servers say whether they are locked
	vStorageFound       api.Version = 14 // a destination of an evacuation finds out whether storage is shared
	vHostStatus         api.Version = 16 // servers say how their host is
	vDescription        api.Version = 19 // of servers
	vActionsOfDeleted   api.Version = 21 // actions of deleted servers are shown
	vTags               api.Version = 26 // of servers, and filters by them
	vAbort              api.Version = 24 // DELETE /servers/{id}/migrations/{migration}
	vForcedEvacuation   api.Version = 29 // to a host that is not checked
	vNetworksRequired   api.Version = 37 // on create
	vStatusChecked      api.Version = 38 // an invalid status is rejected
	vFlavorEmbedded     api.Version = 47 // the flavor of a server is shown as it was
	vActionEvents       api.Version = 51 // members see the events of actions, but for their tracebacks
	vMigrateToHost      api.Version = 56 // migrate names a host
	vActionPages        api.Version = 58 // lists of actions have pages, filters and updated_at
	vActionHost         api.Version = 62 // events of actions have a host
	vTrustedCerts       api.Version = 63 // trusted_image_certificates
	vNoForcedMoves      api.Version = 68 // hosts that are named are always checked
	vShowGroups         api.Version = 71 // servers say in which groups they are
)
