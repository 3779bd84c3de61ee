// SPDX-License-Identifier: Apache-2.0

// Package realkeystone runs OpenStack's own identity service (Debian's package python3-keystone) for tests, so that what is
// claimed of the real thing is tried on the real thing.
package realkeystone
