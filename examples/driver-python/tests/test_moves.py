# SPDX-License-Identifier: Apache-2.0
"""Moves: whatever is done with them, no consumer's sum changes."""

import random
import unittest

from compute_driver import Allocations, Inventory, Move, Place, ReshapeFailed, Tree, apply, distribute
from compute_driver import driver_pb2 as pb

ROOT = "11111111-2222-3333-4444-555555555555"


def tree_of(*totals: int, **inventory: int) -> tuple[Tree, list[Place]]:
    """A root with children that have so many VGPUs each."""
    tree = Tree(pb.ProviderTree(providers=[pb.ResourceProvider(uuid=ROOT, name="cn1")]))
    places = []
    for i, total in enumerate(totals):
        child = tree.child(tree.find("cn1"), f"cn1_gpu_{i}")
        child.set_inventory("VGPU", Inventory(total, **inventory))
        places.append(Place(child.uuid, "VGPU"))
    return tree, places


def allocations_of(held: dict[str, dict[Place, int]]) -> Allocations:
    msg = pb.Allocations()
    for consumer, at in held.items():
        msg.consumers[consumer].generation = 3
        for place, n in at.items():
            msg.consumers[consumer].resources[place.provider].amounts[place.resource_class] = n
    return Allocations(msg)


SOURCE = Place(ROOT, "VGPU")


class Distribute(unittest.TestCase):
    def targets(self, held: dict[str, int], *totals: int, **inventory: int) -> list[tuple[str, int, int]]:
        tree, places = tree_of(*totals, **inventory)
        moves = distribute(tree, allocations_of({c: {SOURCE: n} for c, n in held.items()}), SOURCE, places)
        return [(m.consumer, places.index(m.target), m.amount) for m in moves]

    def test_largest_first_where_the_least_room_is_left(self) -> None:
        self.assertEqual([("b", 1, 3), ("a", 0, 2)], self.targets({"a": 2, "b": 3}, 4, 3))

    def test_split_if_it_fits_nowhere_as_a_whole(self) -> None:
        self.assertEqual([("a", 1, 3), ("a", 0, 1)], self.targets({"a": 4}, 2, 3))

    def test_units_are_respected(self) -> None:
        self.assertEqual([("a", 0, 2), ("a", 1, 2)], self.targets({"a": 4}, 8, 8, max_unit=2))
        self.assertEqual([("a", 1, 4)], self.targets({"a": 4}, 3, 8, step_size=2, min_unit=4))

    def test_known_places_come_first(self) -> None:
        """A consumer goes where it is known to be, unless that is not all of it, or does not fit."""
        tree, places = tree_of(3, 3)
        allocations = allocations_of({c: {SOURCE: n} for c, n in {"a": 3, "b": 1, "c": 2}.items()})
        for known, want in (
            ({"b": [(1, 1)], "c": [(1, 2)]}, [("c", 1, 2), ("b", 1, 1), ("a", 0, 3)]),
            ({"c": [(0, 1), (1, 1)]}, [("c", 0, 1), ("c", 1, 1), ("a", 0, 2), ("a", 1, 1), ("b", 1, 1)]),
            ({"a": [(1, 2)]}, [("a", 0, 3), ("c", 1, 2), ("b", 1, 1)]),
            ({"b": [(1, 1)], "a": [(1, 3)]}, [("a", 1, 3), ("b", 0, 1), ("c", 0, 2)]),
        ):
            moves = distribute(tree, allocations, SOURCE, places, lambda c, known=known: [(places[i], n) for i, n in known.get(c, [])])
            self.assertEqual(want, [(m.consumer, places.index(m.target), m.amount) for m in moves])

    def test_all_consumers_that_do_not_fit_are_named(self) -> None:
        with self.assertRaises(ReshapeFailed) as failed:
            self.targets({"a": 5, "b": 6, "c": 1}, 2, 2)
        self.assertEqual(["b", "a"], [o.consumer for o in failed.exception.violations])

    def test_sums_hold(self) -> None:
        """Random forests: every consumer has as much as before, the source is empty, and no place holds more than it can."""
        rand = random.Random(1)
        for _ in range(300):
            tree, places = tree_of(*(rand.randint(1, 9) for _ in range(rand.randint(1, 5))))
            guests = [f"c{i}" for i in range(rand.randint(0, 6))]
            before = allocations_of({c: {SOURCE: rand.randint(1, 5), Place(ROOT, "VCPU"): 1} for c in guests})
            try:
                after = apply(distribute(tree, before, SOURCE, places), before)
            except ReshapeFailed:
                continue
            for consumer, held in before.resources.items():
                self.assertEqual(held[ROOT]["VGPU"], sum(after.held(consumer, p.provider, "VGPU") for p in places))
                self.assertEqual({"VCPU": 1}, after.resources[consumer][ROOT])
            for place in places:
                self.assertLessEqual(after.used(place.provider, "VGPU"), tree.provider(place.provider).inventory("VGPU").capacity)


class Apply(unittest.TestCase):
    def test_nothing_empty_is_left_and_the_rest_stays(self) -> None:
        before = allocations_of({"a": {SOURCE: 2}, "b": {SOURCE: 1}})
        target = Place("22222222-2222-3333-4444-555555555555", "VGPU")
        after = apply([Move("a", SOURCE, target, 2)], before)
        self.assertEqual({"a": {target.provider: {"VGPU": 2}}, "b": {ROOT: {"VGPU": 1}}}, after.resources)
        self.assertEqual(2, before.held("a", ROOT, "VGPU"))
        self.assertEqual(3, after.message().consumers["a"].generation)

    def test_there_and_back_is_nothing(self) -> None:
        before = allocations_of({"a": {SOURCE: 2}})
        target = Place(ROOT, "CUSTOM_X")
        after = apply([Move("a", SOURCE, target, 1), Move("a", target, SOURCE, 1)], before)
        self.assertEqual(before.resources, after.resources)

    def test_every_move_that_cannot_be_is_named(self) -> None:
        target = Place(ROOT, "CUSTOM_X")
        wrong = [Move("a", SOURCE, target, 3), Move("a", SOURCE, SOURCE, 1), Move("a", SOURCE, target, 0),
                 Move("z", SOURCE, target, 1)]
        with self.assertRaises(ReshapeFailed) as failed:
            apply(wrong, allocations_of({"a": {SOURCE: 2}}))
        self.assertEqual(4, len(failed.exception.violations))


if __name__ == "__main__":
    unittest.main()
