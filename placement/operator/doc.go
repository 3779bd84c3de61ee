// SPDX-License-Identifier: Apache-2.0

// Package operator is what operators do with a Placement service and its database: look at the
// schema, upgrade it, make missing records, and have a query explained. A command on a database
// that a service has open runs in that service, on its [placement.Server].
package operator
