// SPDX-License-Identifier: Apache-2.0

// Package realplacement runs OpenStack's own Placement service (Debian's package python3-placement) for
// tests, so that what is claimed of the real thing is tried on the real thing.
package realplacement
