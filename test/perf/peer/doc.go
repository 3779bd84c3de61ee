// SPDX-License-Identifier: Apache-2.0

// Package peer runs the Placement services that are compared, each with an empty database of its own in a directory of its
// own, and reads what their processes cost: ours (compute-agent placement serve, on SQLite) and OpenStack's (Debian's
// package python3-placement under uwsgi, on MariaDB). Nothing of the machine's own services is used or touched.
package peer
