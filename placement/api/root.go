// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/placement/wire"
)

// versionDocument is the body of GET /. It is the same in every version.
var versionDocument = func() []byte {
	b, err := json.Marshal(wire.VersionDocument())
	if err != nil {
		panic(err) // it has only strings
	}
	return b
}()

// showVersions is GET /, which needs no authentication.
func showVersions(x *exchange) error {
	return x.json(http.StatusOK, versionDocument, time.Time{})
}
