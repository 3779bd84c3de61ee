// SPDX-License-Identifier: Apache-2.0

// Package render formats the output of commands: the provider tree, the status, plans, reports. It
// writes plain text that does not depend on the terminal.
package render
