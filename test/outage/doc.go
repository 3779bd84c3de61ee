// SPDX-License-Identifier: Apache-2.0

// Package outage has only tests. They run the compute API as an operator does (test/world), and
// kill, stop, replace or upgrade its processes.
//
// They are about processes: sockets that refuse, programs that hang, files that another program
// wrote, certificates. What the compute API answers in an outage is proven in packages of cells,
// with cells that refuse, hang, lose answers and answer wrongly, in virtual time;
// docs/specifications.md says where.
//
// Bodies are compared with the files in testdata, in which names stand for identifiers and times;
// -update rewrites the files.
package outage
