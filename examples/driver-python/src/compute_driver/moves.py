# SPDX-License-Identifier: Apache-2.0
"""A reshape as a list of moves. The allocations to return follow from it, and the amounts of each consumer stay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compute_driver.errors import ReshapeFailed, Violation
from compute_driver.tree import MAX_UNIT, Allocations, Tree


@dataclass(frozen=True)
class Place:
    """A resource class on a resource provider, by its uuid."""

    provider: str
    resource_class: str

    def __str__(self) -> str:
        return f"{self.resource_class} on {self.provider}"


@dataclass(frozen=True)
class Move:
    """Moves an amount of the allocations of a consumer from source to target."""

    consumer: str
    source: Place
    target: Place
    amount: int


def apply(moves: Iterable[Move], allocations: Allocations) -> Allocations:
    """Returns the allocations after the moves, in their order. It does not change the given ones.

    Raises ReshapeFailed with a violation for each move that cannot be made. Cost: O(allocations + moves).
    """
    after = allocations.copy()
    violations = []
    for move in moves:
        if problem := _make(move, after):
            violations.append(Violation(move.consumer, move.source.provider, move.source.resource_class, problem))
    if violations:
        raise ReshapeFailed("the allocations cannot be moved", violations)
    return after


def _make(move: Move, allocations: Allocations) -> str:
    source, target = move.source, move.target
    held = allocations.held(move.consumer, source.provider, source.resource_class)
    there = allocations.held(move.consumer, target.provider, target.resource_class)
    if move.amount < 1:
        return f"the amount to move is {move.amount}, must be at least 1"
    if source == target:
        return "source and destination of the move are the same"
    if held < move.amount:
        return f"{move.amount} move to {target}, and {held} are allocated"
    if there + move.amount > MAX_UNIT:
        return f"{move.amount} move to {target}, where {there} are already allocated: more than Placement can store"
    mine = allocations.resources[move.consumer]
    if held == move.amount:
        del mine[source.provider][source.resource_class]
        if not mine[source.provider]:
            del mine[source.provider]
    else:
        mine[source.provider][source.resource_class] = held - move.amount
    mine.setdefault(target.provider, {})[target.resource_class] = there + move.amount
    return ""


def move_all(allocations: Allocations, source: Place, target: Place) -> list[Move]:
    """Returns the moves of the allocations of all consumers from one place to another."""
    held = {c: allocations.held(c, source.provider, source.resource_class) for c in sorted(allocations.resources)}
    return [Move(consumer, source, target, amount) for consumer, amount in held.items() if amount > 0 and source != target]


def rename_class(allocations: Allocations, former: str, present: str, providers: Iterable[str]) -> list[Move]:
    """Moves all allocations of a class on the driver's own providers to another class. A Renamer declares the rename."""
    return [m for uuid in providers for m in move_all(allocations, Place(uuid, former), Place(uuid, present))]


def distribute(tree: Tree, allocations: Allocations, source: Place, targets: list[Place],
               where: Callable[[str], list[tuple[Place, int]]] = lambda consumer: []) -> list[Move]:
    """Returns the moves that distribute the allocations at source to targets, whose inventories the tree already has.

    where returns at which targets a consumer has its resources, or nothing: consumers with known targets come first.
    Of the others the largest amounts come first, each at the place where it leaves the least free; an amount that fits nowhere as a whole
    is split over the places with the most free. The same arguments give the same moves.

    Raises ReshapeFailed with a violation for each consumer that does not fit. Cost: O(consumers x targets).
    """
    free = {}
    for place in targets:
        if (inventory := _inventory(tree, place)) is not None and place != source:
            free[place] = inventory.capacity - allocations.used(place.provider, place.resource_class)
    shares = [(allocations.held(c, source.provider, source.resource_class), c) for c in sorted(allocations.resources)]
    moves, violations = [], []
    known = {}
    for held, consumer in shares:
        portions = where(consumer)
        if sum(n for _, n in portions) == held and {place for place, _ in portions} <= free.keys():
            known[consumer] = portions
    for held, consumer in sorted(filter(lambda s: s[0] > 0, shares), key=lambda s: (s[1] not in known, -s[0])):
        portions = known.get(consumer, [])
        if not portions or any(_fits(tree, allocations, consumer, n, place, free[place]) < n for place, n in portions):
            portions = _portions(tree, allocations, consumer, held, free)
        if (found := sum(n for _, n in portions)) < held:
            violations.append(Violation(consumer, source.provider, source.resource_class,
                                        f"{held} are allocated, and only {found} fit"))
            continue
        for place, n in portions:
            free[place] -= n
            moves.append(Move(consumer, source, place, n))
    if violations:
        raise ReshapeFailed(f"the allocations of {source} cannot be distributed", violations)
    return moves


def _portions(tree: Tree, allocations: Allocations, consumer: str, held: int, free: dict[Place, int]) -> list[tuple[Place, int]]:
    whole = [p for p in free if _fits(tree, allocations, consumer, held, p, free[p]) == held]
    if whole:
        return [(min(whole, key=lambda p: free[p]), held)]
    portions, rest = [], held
    for place in sorted(free, key=lambda p: -free[p]):
        if (n := _fits(tree, allocations, consumer, rest, place, free[place])) > 0:
            portions.append((place, n))
            rest -= n
    return portions


def _fits(tree: Tree, allocations: Allocations, consumer: str, amount: int, place: Place, free: int) -> int:
    """How much of an amount can be added to the allocations of the consumer at a place."""
    inventory = _inventory(tree, place)
    if inventory is None:
        return 0
    there = allocations.held(consumer, place.provider, place.resource_class)
    together = min(amount, free, inventory.max_unit - there) + there
    together -= together % inventory.step_size
    return together - there if together >= inventory.min_unit and together > there else 0


def _inventory(tree: Tree, place: Place):
    provider = tree.provider(place.provider)
    return provider.inventory(place.resource_class) if provider is not None else None
