// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/google/uuid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// What the suite makes up. A broken driver breaks some of it.
const (
	externalClass = "CUSTOM_EXTERNAL"
	externalName  = ":external"
	unknownKey    = "no_driver_has_this_key"
	running       = driverv1.PowerState_POWER_STATE_RUNNING
	shutdown      = driverv1.PowerState_POWER_STATE_SHUTDOWN
)

func consumerName(i int) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, "drivertest consumer ", i)).String()
}
