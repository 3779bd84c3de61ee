// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Version is a microversion of the compute API: the minor number of 2.minor.
type Version uint16

// The range of microversions that are served.
const (
	MinVersion Version = 1  // 2.1
	MaxVersion Version = 71 // 2.71: servers say in which groups they are
)

// The microversions that handlers ask for by name. There is one for each change of the calls that
// this API has.
const (
	vExtendedAttributes Version = 3  // all attributes for administrators; delete_on_termination of volumes
	vFilterIPv6         Version = 5  // members may filter by ip6
	vLocked             Version = 9  // servers say whether they are locked
	vForcedDown         Version = 11 // services can be forced down
	vStorageFound       Version = 14 // a destination of an evacuation finds out whether storage is shared
	vHostStatus         Version = 16 // servers say how their host is
	vDescription        Version = 19 // of servers
	vActionsOfDeleted   Version = 21 // actions of deleted servers are shown
	vTags               Version = 26 // of servers, and filters by them
	vCPUInfo            Version = 28 // of hypervisors, as an object
	vAbort              Version = 24 // DELETE /servers/{id}/migrations/{migration}
	vMigrationTypes     Version = 23 // lists of migrations say of which type each is; those of a server
	vForcedEvacuation   Version = 29 // to a host that is not checked
	vHypervisorPages    Version = 33 // lists of hypervisors have pages
	vNetworksRequired   Version = 37 // on create
	vStatusChecked      Version = 38 // an invalid status is rejected
	vFlavorEmbedded     Version = 47 // the flavor of a server is shown as it was
	vActionEvents       Version = 51 // members see the events of actions, but for their tracebacks
	vServiceUUID        Version = 53 // services go by their uuid
	vMigrateToHost      Version = 56 // migrate names a host
	vActionPages        Version = 58 // lists of actions have pages, filters and updated_at
	vMigrationPages     Version = 59 // lists of migrations have pages, uuids and changes-since
	vActionHost         Version = 62 // events of actions have a host
	vTrustedCerts       Version = 63 // trusted_image_certificates
	vChangesBefore      Version = 66 // a filter
	vNoForcedMoves      Version = 68 // hosts that are named are always checked
	vDownCells          Version = 69 // minimal records
	vShowGroups         Version = 71 // servers say in which groups they are
)

// String is the version as clients write it.
func (v Version) String() string { return fmt.Sprintf("2.%d", uint16(v)) }

// The headers that carry a microversion.
const (
	headerVersion       = "OpenStack-API-Version"
	headerVersionLegacy = "X-OpenStack-Nova-API-Version"
	serviceType         = "compute"
)

var versionForm = regexp.MustCompile(`^([1-9]\d{0,8})\.([1-9]\d{0,8}|0)$`)

// negotiate finds the microversion that the request asks for, as Nova does: the last "compute X" in
// OpenStack-API-Version, or what X-OpenStack-Nova-API-Version says, or else the lowest. From then
// on every answer echoes it; one that is not served is refused with 406 and echoed as well.
func (x *exchange) negotiate() error {
	asked := requestedVersion(x.R.Header)
	switch {
	case asked == "":
		x.version = MinVersion
	case strings.EqualFold(asked, "latest"):
		x.version = MaxVersion
	default:
		parts := versionForm.FindStringSubmatch(asked)
		if parts == nil {
			return badRequest("API Version String %s is of invalid format. Must be of format MajorNum.MinorNum.", shortened(asked))
		}
		minor, err := strconv.ParseUint(parts[2], 10, 16)
		if x.version = Version(minor); err != nil || parts[1] != "2" || x.version < MinVersion || x.version > MaxVersion {
			x.echo(asked)
			return osapi.Errorf(http.StatusNotAcceptable, "Version %s is not supported by the API. Minimum is %s and maximum is %s.", asked, MinVersion, MaxVersion)
		}
	}
	x.echo(x.version.String())
	return nil
}

// echo sets the microversion headers of the answer.
func (x *exchange) echo(version string) {
	x.Microversion = version
	h := x.W.Header()
	h.Set(headerVersion, serviceType+" "+version)
	h.Set(headerVersionLegacy, version)
	h.Add("Vary", headerVersion)
	h.Add("Vary", headerVersionLegacy)
}

// requestedVersion is the microversion that headers ask for, "" for none.
func requestedVersion(h http.Header) string {
	asked := ""
	for _, value := range h.Values(headerVersion) {
		for part := range strings.SplitSeq(value, ",") {
			if words := strings.Fields(part); len(words) == 2 && strings.EqualFold(words[0], serviceType) {
				asked = words[1]
			}
		}
	}
	if asked == "" {
		asked = strings.TrimSpace(h.Get(headerVersionLegacy))
	}
	return asked
}

// since says whether the request is of microversion v or later.
func (x *exchange) since(v Version) bool { return x.version >= v }
