// SPDX-License-Identifier: Apache-2.0

// Package apidoc describes an OpenStack API with microversions, for its reference and its OpenAPI
// document, which package test/openapi writes.
//
// The tests of an API fill an [API] from the tables that its server works with and from their own.
// Bodies are functions of the microversion: the writers evaluate them at each one, and join
// microversions with equal schemas.
package apidoc
