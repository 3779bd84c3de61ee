// SPDX-License-Identifier: Apache-2.0

package reportclient

// ReshapeLog records a reshape before it is posted, and its outcome. It is how a journal on disk
// survives the agent.
type ReshapeLog interface {
	// Begin is called before the request leaves. When it returns, the reshape must be safe on disk;
	// an error means that it is not, and nothing is posted.
	Begin(root string, r *Reshape) error
	// End is called when it is known, or known that it cannot be known now, whether the reshape
	// happened. An error is logged; what happened has happened, and [Client.CompareReshape] finds
	// out later.
	End(root string, outcome ReshapeOutcome) error
}

// ReshapeOutcome is what became of a reshape.
type ReshapeOutcome string

// The outcomes.
const (
	// ReshapeHappened: Placement has the requested layout.
	ReshapeHappened ReshapeOutcome = "happened"
	// ReshapeRefused: it did not happen, and Placement has the previous layout.
	ReshapeRefused ReshapeOutcome = "refused"
	// ReshapeUnknown: no answer came and Placement cannot be asked, or too much has changed since.
	ReshapeUnknown ReshapeOutcome = "unknown"
)
