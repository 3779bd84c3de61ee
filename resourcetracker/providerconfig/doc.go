// SPDX-License-Identifier: Apache-2.0

// Package providerconfig reads Nova's provider.yaml: inventories and traits that the operator adds
// to resource providers that a virt driver or another client created.
//
//	meta:
//	  schema_version: '1.0'
//	providers:
//	  - identification:                     # exactly one of uuid and name
//	      uuid: $COMPUTE_NODE               # the root of each node of this host
//	    inventories:
//	      additional:
//	        - CUSTOM_LICENSE_MATLAB: {total: 4, max_unit: 1}
//	    traits:
//	      additional: [CUSTOM_RACK_7]
//
//	*.yaml ── parse, schema ──▶ Config ── Layer(tree, root) ──▶ ownership.Layer ── ownership.Merge
//	            Problems, Warnings        (by uuid, name or $COMPUTE_NODE)
//
// The schema is Nova's, version 1.0 (nova/compute/provider_config.py): the files of a host that ran
// nova-compute work as they are. Only files *.yaml count, in the order of their names, as with
// Nova; a *.yml is named in a warning. Files whose names begin with a dot are left alone. A
// directory that is not there is an empty configuration.
//
// Where Nova is silent about a mistake, this package is not:
//
//   - a key that is duplicate in one mapping, or a class in one entry, is refused (Nova takes the
//     last one);
//   - amounts are checked against Placement's bounds when the file is read, not when Placement
//     refuses them;
//   - whole numbers are decimal: one with a leading zero, on which YAML 1.1 and 1.2 disagree, is
//     refused, and so are 0x10 and 1e3;
//   - properties that Nova ignores are ignored with a warning, because most are slips (`inventory`
//     for `inventories`).
//
// And where Nova stops at the first problem, [Load] returns all of all files, each with file, line,
// column and hint.
//
// A [Source] keeps the configuration that is in force. It notices changed files with one directory
// listing and one stat per file, waits until they have settled, and keeps the former configuration
// when the new one is invalid.
package providerconfig
