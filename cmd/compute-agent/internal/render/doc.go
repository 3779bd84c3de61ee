// SPDX-License-Identifier: Apache-2.0

// Package render formats the output of commands: the provider tree, the status, plans, reports. It
// writes plain text, which is folded and coloured on a [Terminal] only. A [Watch] repeats a
// command, and a [Progress] shows that one works.
package render
