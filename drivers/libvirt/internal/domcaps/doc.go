// SPDX-License-Identifier: Apache-2.0

// Package domcaps reads libvirt's domain capabilities (https://libvirt.org/formatdomaincaps.html): what an emulator can give to guests of one
// architecture and machine type, and how they run (kvm, qemu).
//
//	virConnectGetDomainCapabilities(arch, machine, type) ──▶ Parse ──▶ Capabilities ──▶ hosttraits
//
// It keeps what decides which traits a host has, and passes over the rest, so that newer versions of libvirt do no harm. What libvirt
// lists under an element that says supported='no' does not count.
package domcaps
