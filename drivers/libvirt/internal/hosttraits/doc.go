// SPDX-License-Identifier: Apache-2.0

// Package hosttraits knows which traits a host's CPU stands for: its features, its architecture, its threads, and the
// architectures that its emulators can run. All names are of os-traits 3.9.0.
//
// The set of x86 features is the one that Nova's libvirt driver reports, so that a root that Nova wrote needs no change.
// Hence HW_CPU_X86_SSE3 follows the feature "sse3", a name that libvirt (which says "pni") never gives.
package hosttraits
