// SPDX-License-Identifier: Apache-2.0

// Package oracle compares the bundled Placement with OpenStack's own: both get the same requests,
// and their answers must mean the same.
//
//	seed ─▶ world: a script of steps ─▶ render ─┬▶ ours, in process ──┐
//	        (forest, writes, reads,    (uuids,  └▶ real, over HTTP ───┴▶ compare ─▶ known?
//	         allocation candidates)    generations)                       ─▶ shrink, print
//
// A world begins on two empty databases. Its steps are made from the seed alone, before anything is
// sent; what depends on the state, such as the generation of a provider, is a placeholder that is
// filled in when the step is sent. So a step can be left out and the rest still makes sense, which
// is what shrinking needs.
//
// Intended differences are data (exceptions.go), each with its reason and as narrow as possible.
// Every other difference is shrunk to a short script of requests and reported with both answers.
package oracle
