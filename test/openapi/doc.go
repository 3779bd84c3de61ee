// SPDX-License-Identifier: Apache-2.0

// Package openapi compares requests and answers of a server with its OpenAPI document. Tests of an
// API hand in every exchange that they have anyway.
package openapi
