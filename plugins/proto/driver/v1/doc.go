// SPDX-License-Identifier: Apache-2.0

// Package driverv1 is version 1 of the protocol between the agent and a virt driver. It is
// generated from driver.proto, which is also its documentation. A released version does not change;
// a test compares it with a description in testdata.
package driverv1

//go:generate ../../generate.sh
