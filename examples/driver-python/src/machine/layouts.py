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

Granted = Callable[[str], dict[str, dict[str, int]]]  # what an instance was granted, by its uuid; none for what is no instance
Wanted = dict[str, int]  # by the name of a provider, how many VGPUs it is to have


def own(root: Provider, provider: Provider) -> bool:
    """Whether this driver made a provider: its uuid follows from its name then."""
    return provider.uuid == child_uuid(root.uuid, provider.name)


def renaming(root: Provider, wanted: Wanted) -> bool:
    """Whether VGPUs of the node have their former name still."""
    return bool(wanted) and root.inventory(FORMER_VGPU) is not None


def rename(root: Provider, wanted: Wanted, allocations: Allocations) -> Allocations:
    """The step from 0 to 1: CUSTOM_VGPU of the node is VGPU."""
    former, there = root.inventory(FORMER_VGPU), root.inventory(VGPU)
    if not renaming(root, wanted) or former is None:
        return allocations
    total = former.total + (there.total if there is not None else 0)
    root.set_inventory(VGPU, Inventory(total, max_unit=total))
    root.remove_inventory(FORMER_VGPU)
    return apply(rename_class(allocations, FORMER_VGPU, VGPU, [root.uuid]), allocations)


def leaving(tree: Tree, root: Provider, wanted: Wanted) -> list[Provider]:
    """The providers whose VGPUs move elsewhere. One that only goes, or only comes, moves nothing."""
    ours = [p for p in [root, *tree.below(root.uuid)] if p is root or own(root, p) or p.name in wanted]
    now = {p.name: p for p in ours if p.inventory(VGPU) is not None}
    if not wanted.keys() - now.keys():
        return []
    return [p for name, p in now.items() if name not in wanted]


def put(tree: Tree, root: Provider, wanted: Wanted) -> list[Place]:
    """Puts VGPUs where they are wanted."""
    places = []
    for name, n in wanted.items():
        provider = root if name == root.name else tree.child(root, name)
        provider.set_inventory(VGPU, Inventory(n, max_unit=n))
        places.append(Place(provider.uuid, VGPU))
    return places


def move(call: Call, tree: Tree, root: Provider, wanted: Wanted, allocations: Allocations, granted: Granted) -> Allocations:
    """The step from 1 to 2, and back if it is so configured: VGPUs go where they are wanted, and what guests hold goes with them: to
    where an instance has its own, if that is known."""
    sources = leaving(tree, root, wanted)
    if not sources:
        return allocations
    places = put(tree, root, wanted)
    for source in sources:
        call.check()
        moves = distribute(tree, allocations, Place(source.uuid, VGPU), places,
                           lambda consumer: [(Place(at, VGPU), amounts[VGPU]) for at, amounts in granted(consumer).items() if VGPU in amounts])
        allocations = apply(moves, allocations)
        source.remove_inventory(VGPU)
        call.log.info("reshaped", provider=source.name, moves=len(moves))
    return allocations


def prune(tree: Tree, root: Provider, wanted: Wanted, emptied: list[Provider]) -> None:
    """Removes our children of GPUs that are gone. A provider that another program made, or uses, stays."""
    for provider in reversed(tree.below(root.uuid)):
        if not own(root, provider) or provider.name in wanted:
            continue
        inventories = set(provider.inventories)
        if provider in emptied or VGPU in inventories:
            provider.remove_inventory(VGPU)
            if inventories <= {VGPU} and not tree.children(provider.uuid):
                tree.remove(provider)
