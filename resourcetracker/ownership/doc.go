// SPDX-License-Identifier: Apache-2.0

// Package ownership knows what in Placement is ours, and makes sure that nothing else is ever taken
// away: not neutron's bandwidth providers, not a trait that an administrator set, not what the next
// release of another client's service writes.
//
// What is ours is kept per compute node in a [Record]: each resource provider, inventory, trait and
// aggregate that this agent has made Placement say, and on whose behalf: the driver's, the
// operator's (provider.yaml) or the agent's own. With it, each pass is a merge of three states, as
// in "kubectl apply" or git: what was last applied, what is there, what is wanted.
//
//	known ──────────────┬──────────────────────────────┐
//	  what Placement    │ Strip: without the layers    │
//	  says              ▼                              │
//	                  base ──▶ driver ──▶ answer       │
//	record ───────┐     │                  │           │
//	  last        ▼     ▼                  ▼           ▼
//	  applied   Merge: the driver's step, then the   Drain: what is allocated
//	            layers (agent, operator) on top ────▶ stays until it is free
//	                                                       │
//	                                                       ▼
//	                                                  desired, and its record
//
// The driver's step looks at each item, which is one inventory (by class), trait or aggregate of
// one provider, or the provider itself:
//
//	in base   in the answer          by the record   then
//	no        yes                    (any)           it is made, and is the driver's
//	yes       yes, another value     (any)           it is changed, and is the driver's
//	yes       yes, the same          driver's        it stays the driver's
//	yes       yes, the same          (none)          it stays another client's
//	yes       no                     driver's        it goes
//	yes       no                     (none)          it is put back and listed in [Result].Kept
//	no        no                     a layer's       it goes, unless a layer has it
//
// A provider that goes takes with it all that is on it, since there is nothing left for it to be
// on; but a provider that stays keeps its ancestors: of one that was to go there remain name,
// parent and what is not ours. A provider of another client's that the driver renamed or moved is
// put back where it was.
//
// A removal is honoured without a record
//
//   - of a child provider in the node's tree that has a mark of Nova's: COMPUTE_MANAGED_PCI_DEVICE,
//     or OWNER_NOVA where the operator has no entry (Nova marks those too, though they are
//     others'). Such a one can also be renamed and moved. A mark that is ours by the record does
//     not count;
//   - of inventories, in a reshape, on the root and on the providers that are the driver's or
//     marked: the guard has watched that their allocations move;
//   - of an inventory of a provider of the node's tree, also of another client's, if in the same
//     answer the class comes or grows elsewhere in that tree: it moves, and must not be reported
//     twice (the agent that made it may have lost its state directory). A provider that the driver
//     takes away as a whole loses it so in a reshape only;
//   - in a reshape, of a trait that the driver takes off a provider of the node's tree, also of
//     another client's, if in the same answer another provider of that tree has it that had it not:
//     it moves with the inventory. Outside of a reshape it stays, as traits may be in several
//     places; so do those of a provider that the driver takes away as a whole and that stays, which
//     may be the same by chance (CUSTOM_PHYSNET_0 of neutron's and of a PCI device's), and Nova's
//     marks. [Result].Former has it as the driver's;
//   - of what [Adopt] recognises at the first contact.
//
// Then the layers, in order, on the providers that are there:
//
//	the item is   another client's, or missing   the driver's         another layer's
//	agent         becomes the agent's            stays the driver's   stays the other's
//	operator      becomes the operator's         stays the driver's   stays the other's
//
// That an operator's item stays the driver's is a [Conflict]; so is an inventory of the operator's
// that stays another layer's with another value.
//
// Becoming a layer's takes no write if the value is the same; so what Nova wrote for the same
// provider.yaml is taken over in silence, and so is COMPUTE_NODE. From then on it is ours, and goes
// when the layer no longer has it. (A mark of Nova's on a child is not taken over: it must stay
// one.) A driver that says an item itself, from the same value that was there when a layer took it,
// shows that only in the next pass: then it is the driver's.
//
// Sharing providers, roots beside the node's, are treated like any provider of another client's:
// the exceptions do not hold there. What a driver adds or changes on one that it has not made, and
// on what is below it, is left out and listed in [Result].Kept: the drivers of other hosts see the
// same provider, and each would undo what the others wrote. An operator's provider.yaml may.
//
// Names are each given once. Where a provider that stays has the name that the driver gives to
// another one, the other one keeps its old name, or is not made, and that is a [Conflict] of the
// driver's (an error in a reshape). And where what is put back and what the driver moved are each
// below the other, or something would come into another root's tree, nothing is moved.
//
// The named resources of a provider are for the host alone and no matter of ownership: they are as
// the driver answered.
//
// What Drain closes is remembered in the record as it was before (Stock.Held). Strip shows it to
// the driver like that, as long as no client has changed it meanwhile: what is reserved of it is
// the agent's doing and not an operator's, and ends when the driver has the class again.
//
// Around the writes: save [Record.Union] of the old record ([Result].Former) and the new one,
// write, and save the new one when all of it was written. Then whatever a crash leaves behind is
// known to be ours.
package ownership
