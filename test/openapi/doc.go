// SPDX-License-Identifier: Apache-2.0

// Package openapi writes the reference of an API in Markdown and its OpenAPI document, and compares
// requests and answers of a server with that document.
//
//	route table of the API ─▶ apidoc.API ─▶ Markdown
//	                                     ─▶ OpenAPI ─▶ Document.Check ◀─ exchanges of tests
//
// Tests of an API hand in every exchange that they have anyway.
package openapi
