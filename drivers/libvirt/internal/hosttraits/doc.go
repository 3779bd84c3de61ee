// SPDX-License-Identifier: Apache-2.0

// Package hosttraits knows which traits a host stands for: what its CPU is and can do, and what its hypervisor can give to guests. All names are
// of os-traits 3.9.0.
//
//	capabilities, cpuinfo ──▶ CPU features, architecture, threads ─┐
//	domain capabilities ────▶ disk buses, video, TPM, firmware, … ─┼─▶ Verdicts: the root's traits, which are the driver's (Owned)
//	versions ───────────────▶ models that came with them          ─┘
//	configuration ──────────▶ what nova-compute promises           ──▶ Capabilities: which are the agent's to put on the root
//	descriptions of mdevs ─────────────────────────────────────────▶ GPU: for the providers of GPUs
//
// The traits are those that Nova's libvirt driver reports for the same host, so that a root that Nova wrote needs no change, and the scheduler
// sees the same host. Hence HW_CPU_X86_SSE3 follows the feature "sse3", a name that libvirt (which says "pni") never gives. Traits for facts that Nova
// does not report are left out unless the configuration asks for them.
//
// A verdict needs an answer: where libvirt was not asked, or cannot say, a trait is neither reported nor taken away.
package hosttraits
