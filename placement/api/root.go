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
		panic(err) // It is made of strings.
	}
	return b
}()

// showVersions is GET /. Whoever can reach the server may see it.
func showVersions(x *exchange) error {
	return x.json(http.StatusOK, versionDocument, time.Time{})
}
