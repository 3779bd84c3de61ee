# SPDX-License-Identifier: Apache-2.0
"""The layouts that this driver's trees have had, and the migration from each to the next. Each migration looks for what it moves.

| version | layout |
|---|---|
| 1 | VGPU is on the node, as Nova has it too |
| 2 | VGPU is on a child for each GPU |

Before layouts had versions, the driver called the class CUSTOM_VGPU.
"""

from __future__ import annotations

from collections.abc import Callable

from compute_driver import Allocations, Call, Inventory, Place, Provider, Tree, apply, child_uuid, distribute, rename_class

VGPU = "VGPU"
FORMER_VGPU = "CUSTOM_VGPU"
PRESENT = 2

AllocationsOf = Callable[[str], dict[str, dict[str, int]]]  # the allocations that an instance was created with, by its uuid; {} for any other uuid
Desired = dict[str, int]  # by the name of a provider, how many VGPUs it must have


def own(root: Provider, provider: Provider) -> bool:
    """Whether this driver created a provider: then its uuid follows from its name."""
    return provider.uuid == child_uuid(root.uuid, provider.name)


def renaming(root: Provider, desired: Desired) -> bool:
    """Whether VGPUs of the node still have their former name."""
    return bool(desired) and root.inventory(FORMER_VGPU) is not None


def rename(root: Provider, desired: Desired, allocations: Allocations) -> Allocations:
    """The migration from 0 to 1: CUSTOM_VGPU of the node is VGPU."""
    former, there = root.inventory(FORMER_VGPU), root.inventory(VGPU)
    if not renaming(root, desired) or former is None:
        return allocations
    total = former.total + (there.total if there is not None else 0)
    root.set_inventory(VGPU, Inventory(total, max_unit=total))
    root.remove_inventory(FORMER_VGPU)
    return apply(rename_class(allocations, FORMER_VGPU, VGPU, [root.uuid]), allocations)


def sources(tree: Tree, root: Provider, desired: Desired) -> list[Provider]:
    """Returns the providers whose VGPUs move to others. If GPUs are only added or only removed, nothing moves."""
    ours = [p for p in [root, *tree.below(root.uuid)] if p is root or own(root, p) or p.name in desired]
    now = {p.name: p for p in ours if p.inventory(VGPU) is not None}
    if not desired.keys() - now.keys():
        return []
    return [p for name, p in now.items() if name not in desired]


def set_inventories(tree: Tree, root: Provider, desired: Desired) -> list[Place]:
    """Sets the desired inventories of VGPUs, and returns their places."""
    places = []
    for name, n in desired.items():
        provider = root if name == root.name else tree.child(root, name)
        provider.set_inventory(VGPU, Inventory(n, max_unit=n))
        places.append(Place(provider.uuid, VGPU))
    return places


def move(call: Call, tree: Tree, root: Provider, desired: Desired, allocations: Allocations, allocations_of: AllocationsOf) -> Allocations:
    """The migration from 1 to 2, and back if the configuration says so. Allocations move with the VGPUs, those of an instance to where it has
    its own, if that is known."""
    moved = sources(tree, root, desired)
    if not moved:
        return allocations
    places = set_inventories(tree, root, desired)
    for source in moved:
        call.check()
        moves = distribute(tree, allocations, Place(source.uuid, VGPU), places,
                           lambda consumer: [(Place(at, VGPU), amounts[VGPU]) for at, amounts in allocations_of(consumer).items() if VGPU in amounts])
        allocations = apply(moves, allocations)
        source.remove_inventory(VGPU)
        call.log.info("reshaped", provider=source.name, moves=len(moves))
    return allocations


def prune(tree: Tree, root: Provider, desired: Desired, emptied: list[Provider]) -> None:
    """Removes this driver's children of removed GPUs. A provider that another program created or uses stays."""
    for provider in reversed(tree.below(root.uuid)):
        if not own(root, provider) or provider.name in desired:
            continue
        inventories = set(provider.inventories)
        if provider in emptied or VGPU in inventories:
            provider.remove_inventory(VGPU)
            if inventories <= {VGPU} and not tree.children(provider.uuid):
                tree.remove(provider)
