// SPDX-License-Identifier: Apache-2.0

// Package driverv1 is the wire between the agent and a virt driver, version 1: generated from driver.proto, which is
// also its documentation. A released version does not change; a test compares it with a description kept in testdata.
package driverv1

//go:generate ../../generate.sh
