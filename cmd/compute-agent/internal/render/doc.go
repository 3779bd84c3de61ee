// SPDX-License-Identifier: Apache-2.0

// Package render prints what the agent knows for people: the provider tree, the status, a plan. It takes the values of
// package control and writes plain text; the same input gives the same text, whatever the terminal.
package render
