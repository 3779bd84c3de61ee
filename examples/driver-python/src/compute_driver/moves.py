# SPDX-License-Identifier: Apache-2.0
"""A reshape as its author thinks of it: what goes where. The allocations to return follow from it, and no consumer's sum changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from compute_driver.answers import ReshapeFailed, Violation
from compute_driver.tree import MAX_UNIT, Allocations, Tree


@dataclass(frozen=True)
class Place:
    """Where a consumer holds something: a resource class on a resource provider, by its uuid."""

    provider: str
    resource_class: str

    def __str__(self) -> str:
        return f"{self.resource_class} on {self.provider}"


@dataclass(frozen=True)
class Move:
    """Amount of what a consumer holds at source is the same amount at target instead."""

    consumer: str
    source: Place
    target: Place
    amount: int


def apply(moves: Iterable[Move], allocations: Allocations) -> Allocations:
    """The allocations after the moves, in their order. Those given stay as they are.

    Raises ReshapeFailed that lists every move that cannot be made. Cost: O(allocations + moves).
    """
    after = allocations.copy()
    violations = []
    for move in moves:
        if problem := _make(move, after):
            violations.append(Violation(move.consumer, move.source.provider, move.source.resource_class, problem))
    if violations:
        raise ReshapeFailed("not everything can be moved", violations)
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
    """The moves of what every consumer holds at one place to another."""
    held = {c: allocations.held(c, source.provider, source.resource_class) for c in sorted(allocations.resources)}
    return [Move(consumer, source, target, amount) for consumer, amount in held.items() if amount > 0 and source != target]


def rename_class(allocations: Allocations, former: str, present: str, providers: Iterable[str]) -> list[Move]:
    """Moves all allocations of a class on the driver's own providers to another class. Declare the rename: see Renamer."""
    return [m for uuid in providers for m in move_all(allocations, Place(uuid, former), Place(uuid, present))]


def distribute(tree: Tree, allocations: Allocations, source: Place, targets: list[Place],
               where: Callable[[str], list[tuple[Place, int]]] = lambda consumer: []) -> list[Move]:
    """The moves that spread what is allocated at source over targets, whose inventories the tree has already.

    where says at which targets a consumer has what it holds, as far as that is known: these consumers go there, before all others.
    Of the rest the largest amounts come first, each to the place where it leaves the least room; what fits nowhere as a whole is split over
    the roomiest places. The same arguments give the same moves.

    Raises ReshapeFailed that lists every consumer that does not fit. Cost: O(consumers x targets).
    """
    room = {}
    for place in targets:
        if (inventory := _inventory(tree, place)) is not None and place != source:
            room[place] = inventory.capacity - allocations.used(place.provider, place.resource_class)
    shares = [(allocations.held(c, source.provider, source.resource_class), c) for c in sorted(allocations.resources)]
    moves, violations = [], []
    known = {}
    for held, consumer in shares:
        portions = where(consumer)
        if sum(n for _, n in portions) == held and {place for place, _ in portions} <= room.keys():
            known[consumer] = portions
    for held, consumer in sorted(filter(lambda s: s[0] > 0, shares), key=lambda s: (s[1] not in known, -s[0])):
        portions = known.get(consumer, [])
        if not portions or any(_fits(tree, allocations, consumer, n, place, room[place]) < n for place, n in portions):
            portions = _portions(tree, allocations, consumer, held, room)
        if (found := sum(n for _, n in portions)) < held:
            violations.append(Violation(consumer, source.provider, source.resource_class,
                                        f"{held} are allocated, and only {found} fit"))
            continue
        for place, n in portions:
            room[place] -= n
            moves.append(Move(consumer, source, place, n))
    if violations:
        raise ReshapeFailed(f"the allocations of {source} cannot be distributed", violations)
    return moves


def _portions(tree: Tree, allocations: Allocations, consumer: str, held: int, room: dict[Place, int]) -> list[tuple[Place, int]]:
    whole = [p for p in room if _fits(tree, allocations, consumer, held, p, room[p]) == held]
    if whole:
        return [(min(whole, key=lambda p: room[p]), held)]
    portions, rest = [], held
    for place in sorted(room, key=lambda p: -room[p]):
        if (n := _fits(tree, allocations, consumer, rest, place, room[place])) > 0:
            portions.append((place, n))
            rest -= n
    return portions


def _fits(tree: Tree, allocations: Allocations, consumer: str, amount: int, place: Place, room: int) -> int:
    """How many of an amount can be added to what the consumer holds at a place."""
    inventory = _inventory(tree, place)
    if inventory is None:
        return 0
    there = allocations.held(consumer, place.provider, place.resource_class)
    together = min(amount, room, inventory.max_unit - there) + there
    together -= together % inventory.step_size
    return together - there if together >= inventory.min_unit and together > there else 0


def _inventory(tree: Tree, place: Place):
    provider = tree.provider(place.provider)
    return provider.inventory(place.resource_class) if provider is not None else None
