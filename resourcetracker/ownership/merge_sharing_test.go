// SPDX-License-Identifier: Apache-2.0

package ownership

import "github.com/compute-agent/compute-agent/providertree"

// sharingCases are those of a sharing provider beside the node, which drivers of other hosts see.
var sharingCases = map[string]mergeCase{
	"a driver adds and changes nothing on a sharing provider": {
		known: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8 @shared
nfs DISK_GB=200 CUSTOM_IOPS=5 CUSTOM_FAST MISC_SHARES_VIA_AGGREGATE @shared @zone`,
		want: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{
			"added the aggregate", "added the inventory CUSTOM_IOPS of resource provider nfs",
			"changed the inventory DISK_GB of resource provider nfs",
			"added the trait CUSTOM_FAST of resource provider nfs",
		},
	},
	"nor below one": {
		known: `
cn1 VCPU=8 @shared
nfs MISC_SHARES_VIA_AGGREGATE @shared
  pool DISK_GB=100`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8 @shared
nfs MISC_SHARES_VIA_AGGREGATE @shared
  pool DISK_GB=200`,
		want: `
cn1 VCPU=8 @shared
nfs MISC_SHARES_VIA_AGGREGATE @shared
  pool DISK_GB=100`, wantRecord: "cn1 driver VCPU:driver",
		kept: []string{"changed the inventory DISK_GB of resource provider pool"},
	},
	"what a driver wrote on a sharing provider before stays as others have changed it since": {
		known: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, record: "cn1 driver VCPU:driver\nnfs DISK_GB:driver",
		answer: `
cn1 VCPU=8 @shared
nfs DISK_GB=200 MISC_SHARES_VIA_AGGREGATE @shared`,
		want: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, wantRecord: "cn1 driver VCPU:driver\nnfs DISK_GB:driver",
		kept: []string{"changed the inventory DISK_GB of resource provider nfs"},
	},
	"an operator changes a sharing provider": {
		known: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, record: "cn1 driver VCPU:driver",
		answer: `
cn1 VCPU=8 @shared
nfs DISK_GB=100 MISC_SHARES_VIA_AGGREGATE @shared`, operator: entryFor("nfs", providertree.Inventories{"CUSTOM_IOPS": {Total: 7}}, "CUSTOM_FAST"),
		want: `
cn1 VCPU=8 @shared
nfs CUSTOM_IOPS=7 DISK_GB=100 CUSTOM_FAST MISC_SHARES_VIA_AGGREGATE @shared`, wantRecord: "cn1 driver VCPU:driver\nnfs CUSTOM_IOPS:operator CUSTOM_FAST:operator",
	},
}
