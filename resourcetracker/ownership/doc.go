// SPDX-License-Identifier: Apache-2.0

// Package ownership records what in Placement is ours, and ensures that a pass removes nothing
// else: no bandwidth provider of neutron, no trait that an administrator set, nothing that a later
// release of another service writes.
//
// A [Record] has what is ours of a compute node: each resource provider, inventory, trait and
// aggregate that this agent wrote, and for whom: for the driver, for the operator (provider.yaml)
// or for the agent itself. With it, each pass is a merge of three states, as in "kubectl apply" or
// git: the state that was last applied, the present one and the desired one.
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
// The driver's step decides about each item: an inventory (by class), trait or aggregate of a
// provider, or the provider itself:
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
// With a provider, everything on it is removed. But the ancestors of a provider that stays must
// stay as well: an ancestor that the driver removed keeps its name, its parent and what is not
// ours. A provider of another client that the driver renamed or moved is put back.
//
// The driver may also remove items that are not its own by the record:
//
//   - a child provider in the node's tree with a mark of Nova's: COMPUTE_MANAGED_PCI_DEVICE, or
//     OWNER_NOVA unless the operator has an entry for the provider (Nova marks these too, though
//     they belong to others). The driver may also rename and move such a provider. A mark that is
//     ours by the record does not count;
//   - in a reshape, inventories on the root and on providers that are the driver's or marked: the
//     guard has checked that their allocations move;
//   - an inventory of any provider in the node's tree, if in the same answer another provider of
//     the tree gets the class, or more of it: the inventory moves, and must not be reported twice
//     (the agent that created it may have lost its state directory). On a provider that the driver
//     removes as a whole, this holds in a reshape only;
//   - in a reshape, a trait of any provider in the node's tree, if in the same answer another
//     provider of the tree gets it: the trait moves with the inventory, and [Result].Former has it
//     as the driver's. Outside of a reshape the trait stays, because several providers may have it.
//     So do Nova's marks, and the traits of a provider that the driver removed as a whole and that
//     stays: they may be equal by chance (CUSTOM_PHYSNET_0 of neutron and of a PCI device);
//   - what [Adopt] recognises at the first contact.
//
// Then the layers are added in order, to the providers that exist:
//
//	the item is   another client's, or missing   the driver's         another layer's
//	agent         becomes the agent's            stays the driver's   stays the other's
//	operator      becomes the operator's         stays the driver's   stays the other's
//
// An item of the operator's layer that stays the driver's is a [Conflict]. So is an inventory of
// the operator's layer that stays another layer's with another value.
//
// An item with an equal value becomes a layer's without a write. So COMPUTE_NODE, and what Nova
// wrote for the same provider.yaml, become ours. From then on the item is removed when the layer no
// longer has it. A mark of Nova's on a child provider does not become ours, because it must go on
// marking the provider. If the driver reports an item with the value that it had when a layer took
// it, the item becomes the driver's in the next pass.
//
// Sharing providers, which are roots beside the node's, are treated like any provider of another
// client, without the exceptions above. What a driver adds to or changes on one that it did not
// create, or on providers below it, is left out and listed in [Result].Kept: the drivers of other
// hosts see the same provider, and each would undo what the others wrote. An operator may add to it
// in provider.yaml.
//
// Names are unique. If a provider that stays has the name that the driver gives to another one, the
// other one keeps its old name, or is not created; that is a [Conflict] of the driver (an error in
// a reshape). If a provider that is put back and one that the driver moved would be each below the
// other, or a provider would come into another root's tree, nothing is moved.
//
// The named resources of a provider are for the host alone and have no owner: they are as in the
// driver's answer.
//
// The record has inventories that Drain closed as they were before. Strip shows them to the driver
// like that unless a client has changed them since: their reservation is the agent's and not an
// operator's, and ends when the driver reports the class again.
//
// Before the writes of a pass, [Record.Union] of the old record ([Result].Former) and the new one
// is saved; the new one is saved after all writes have succeeded. So everything that a crash leaves
// in Placement is known to be ours.
package ownership
