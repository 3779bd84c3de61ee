// SPDX-License-Identifier: Apache-2.0

package api

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

// Microversions that change calls of several packages; others are where their calls are.
const (
	VDescription     Version = 19 // of servers
	VMigrationTypes  Version = 23 // lists of migrations say of which type each is; those of a server
	VTags            Version = 26 // of servers, and filters by them
	VNoInjectedFiles Version = 57 // no personality on create; no injected files among limits and quotas
	VTrustedCerts    Version = 63 // trusted_image_certificates
	VChangesBefore   Version = 66 // a filter
	VDownCells       Version = 69 // minimal records
)

// String is the version as clients write it.
func (v Version) String() string { return fmt.Sprintf("2.%d", uint16(v)) }

// The headers that carry a microversion.
const (
	headerVersion       = "OpenStack-API-Version"
	headerVersionLegacy = "X-OpenStack-Nova-API-Version"
	ServiceType         = "compute"
)

var versionForm = regexp.MustCompile(`^([1-9]\d{0,8})\.([1-9]\d{0,8}|0)$`)

// negotiate finds the microversion that the request asks for, as Nova does: the last "compute X" in
// OpenStack-API-Version, or what X-OpenStack-Nova-API-Version says, or else the lowest. From then
// on every answer echoes it; one that is not served is refused with 406 and echoed as well.
func (x *Exchange) negotiate() error {
	asked := requestedVersion(x.R.Header)
	switch {
	case asked == "":
		x.Version = MinVersion
	case strings.EqualFold(asked, "latest"):
		x.Version = MaxVersion
	default:
		parts := versionForm.FindStringSubmatch(asked)
		if parts == nil {
			return osapi.BadRequest("API Version String %s is of invalid format. Must be of format MajorNum.MinorNum.",
				osapi.Shortened(asked))
		}
		minor, err := strconv.ParseUint(parts[2], 10, 16)
		if x.Version = Version(minor); err != nil ||
			parts[1] != "2" || x.Version < MinVersion || x.Version > MaxVersion {
			x.setVersionHeaders(asked)
			return osapi.Errorf(http.StatusNotAcceptable,
				"Version %s is not supported by the API. Minimum is %s and maximum is %s.",
				asked, MinVersion, MaxVersion)
		}
	}
	x.setVersionHeaders(x.Version.String())
	return nil
}

// setVersionHeaders writes the microversion of the answer.
func (x *Exchange) setVersionHeaders(version string) {
	x.Microversion = version
	h := x.W.Header()
	h.Set(headerVersion, ServiceType+" "+version)
	h.Set(headerVersionLegacy, version)
	h.Add("Vary", headerVersion)
	h.Add("Vary", headerVersionLegacy)
}

// requestedVersion is the microversion that headers ask for, "" for none.
func requestedVersion(h http.Header) string {
	asked := ""
	for _, value := range h.Values(headerVersion) {
		for part := range strings.SplitSeq(value, ",") {
			if words := strings.Fields(part); len(words) == 2 && strings.EqualFold(words[0], ServiceType) {
				asked = words[1]
			}
		}
	}
	if asked == "" {
		asked = strings.TrimSpace(h.Get(headerVersionLegacy))
	}
	return asked
}

// AtLeast reports whether the request is of microversion v or later.
func (x *Exchange) AtLeast(v Version) bool { return x.Version >= v }
