// SPDX-License-Identifier: Apache-2.0

// Package pcispec says which PCI devices guests may be given whole, and which resource providers they become. The options are Nova's
// [pci] device_spec and report_in_placement; providers are named, and devices counted, as Nova does it:
//
//	device                        provider               total
//	a plain device                its own, <node>_<ADDR>  1
//	a physical function (SR-IOV)  its own                 1
//	virtual functions             that of their physical  as many as there are
//	                              function
//
// A device is governed by the first spec that matches it. A physical function and its virtual functions are never both given away.
package pcispec
