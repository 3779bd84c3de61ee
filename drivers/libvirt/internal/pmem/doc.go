// SPDX-License-Identifier: Apache-2.0

// Package pmem gives persistent memory to guests, in whole namespaces that an operator named: CUSTOM_PMEM_NAMESPACE_<label> on the root, one
// unit a namespace. The option is Nova's [libvirt]pmem_namespaces.
//
//	/sys/bus/nd ─▶ Read ─▶ []Namespace ─┐
//	configuration ─▶ Parse ─▶ Labels ───┴▶ Choose ─▶ []Pool, doubts
//
// A guest gets a namespace by its character device (/dev/dax0.0), so a namespace counts only in the mode that has one, devdax, and with the
// driver that serves it. Nova does not start when a configured namespace is missing. Here it does not count, and a doubt says so: one
// broken module takes its own namespaces out of the inventory, and not the host.
package pmem
