// SPDX-License-Identifier: Apache-2.0

package identity

import "github.com/compute-agent/compute-agent/reportclient"

// Error is a refusal: the agent might report as another host, or to another Placement. Nothing was
// written. It is a [reportclient.ErrIdentity], as is what Placement itself holds against an
// identity.
type Error struct {
	// Problem says what was found where, Hint names the ways out.
	Problem, Hint string
}

func (e *Error) Error() string { return e.Problem + "; what to do: " + e.Hint }

// Unwrap makes it a [reportclient.ErrIdentity].
func (e *Error) Unwrap() error { return reportclient.ErrIdentity }
