// SPDX-License-Identifier: Apache-2.0

// Package apidoc describes an OpenStack API with microversions, and writes its reference in
// Markdown and its OpenAPI document.
//
//	route table of the API ─▶ API ─▶ Markdown
//	                              ─▶ OpenAPI
//
// An API fills an [API] from the tables that its server works with. Bodies are functions of the
// microversion: the writers evaluate them at each one, and join microversions with equal schemas.
package apidoc
