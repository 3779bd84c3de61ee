# SPDX-License-Identifier: Apache-2.0
"""The driver, without a process: what it makes of trees."""

import tempfile
import unittest

from compute_driver import Allocations, ConfigError, HostInfo, Inventory, Node, NotReady, ReshapeFailed, ReshapeNeeded, Tree, child_uuid
from compute_driver import driver_pb2 as pb
from machine.config import parse
from machine.driver import MachineDriver
from machine.hardware import Hardware, look
from serving import QUIET

ROOT = "11111111-2222-3333-4444-555555555555"
OTHER = "aaaaaaaa-2222-3333-4444-555555555555"
GUEST = "99999999-2222-3333-4444-555555555555"


class FakeCall:
    """A call that the agent does not give up."""

    log = QUIET

    def check(self) -> None:
        pass


def driver(**config: object) -> MachineDriver:
    d = MachineDriver(look=lambda _path: Hardware(processors=8, memory_mb=4096, disk_gb=100))
    d.configure(FakeCall(), config, HostInfo("cn1"))
    return d


def node(*others: pb.ResourceProvider, **inventories: int) -> Tree:
    root = pb.ResourceProvider(uuid=ROOT, name="cn1", generation=7)
    for name, total in inventories.items():
        root.inventories[name].total = total
    return Tree(pb.ProviderTree(providers=[root, *others]))


def holding(vgpus: int, name: str = "VGPU") -> Allocations:
    msg = pb.Allocations()
    msg.consumers[GUEST].resources[ROOT].amounts[name] = vgpus
    return Allocations(msg)


def again(tree: Tree) -> Tree:
    return Tree(pb.ProviderTree.FromString(tree.message().SerializeToString()))


class Trees(unittest.TestCase):
    def update(self, d: MachineDriver, tree: Tree, allocations: Allocations | None = None) -> Allocations | None:
        """Updates twice: the second time changes nothing."""
        after = d.update_provider_tree(FakeCall(), tree, "cn1", allocations)
        twice = again(tree)
        d.update_provider_tree(FakeCall(), twice, "cn1", None)
        self.assertEqual(tree.message(), twice.message())
        return after

    def test_the_machine(self) -> None:
        tree = node()
        self.update(driver(traits=["CUSTOM_A"], gpus={"one": 4}), tree)
        root = tree.find("cn1")
        self.assertEqual(Inventory(8, max_unit=8, allocation_ratio=4.0), root.inventory("VCPU"))
        self.assertEqual(Inventory(4096, reserved=512, max_unit=4096), root.inventory("MEMORY_MB"))
        self.assertEqual({"CUSTOM_A"}, root.traits)
        gpu = tree.find("cn1_one")
        self.assertEqual((child_uuid(ROOT, "cn1_one"), ROOT, 4), (gpu.uuid, gpu.parent_uuid, gpu.inventory("VGPU").total))
        self.assertEqual(7, root.message.generation)
        self.assertFalse(gpu.message.HasField("generation"))

    def test_it_warns_of_what_cannot_be_and_no_longer_when_it_can(self) -> None:
        hardware = Hardware(processors=8, memory_mb=256, disk_gb=0)
        d = MachineDriver(look=lambda _path: hardware)
        self.assertEqual([], d.warnings())
        d.configure(FakeCall(), {}, HostInfo("cn1"))
        self.update(d, node())
        self.assertEqual(["reserved-memory", "disk-size"], [w.name for w in d.warnings()])
        hardware = Hardware(processors=8, memory_mb=4096, disk_gb=1)
        self.update(d, node())
        self.assertEqual([], d.warnings())

    def test_others_providers_and_inventories_stay(self) -> None:
        other = pb.ResourceProvider(uuid=OTHER, name="cn1:bandwidth", parent_uuid=ROOT, traits=["T"])
        theirs = pb.ResourceProvider(uuid=child_uuid(ROOT, "cn1_empty"), name="cn1_empty", parent_uuid=ROOT)
        tree = node(other, theirs, CUSTOM_X=1, VGPU=3)
        self.update(driver(), tree)
        self.assertEqual(other, tree.find("cn1:bandwidth").message)
        self.assertIsNotNone(tree.find("cn1_empty"))
        self.assertEqual({"CUSTOM_X": 1, "VGPU": 3}, {c: tree.find("cn1").inventory(c).total for c in ("CUSTOM_X", "VGPU")})

    def test_a_child_that_another_made_is_taken_over(self) -> None:
        tree = node(pb.ResourceProvider(uuid=OTHER, name="cn1_one", parent_uuid=ROOT))
        self.update(driver(gpus={"one": 4}), tree)
        self.assertEqual(4, tree.provider(OTHER).inventory("VGPU").total)

    def test_what_is_configured_no_more_goes(self) -> None:
        tree = node()
        d = driver(gpus={"one": 4, "two": 4}, traits=["CUSTOM_A", "CUSTOM_B"])
        self.update(d, tree)
        d.configure(FakeCall(), {"gpus": {"two": 4}, "traits": ["CUSTOM_B"]}, HostInfo("cn1"))
        self.update(d, tree)
        self.assertIsNone(tree.find("cn1_one"))
        self.assertEqual({"CUSTOM_B"}, tree.find("cn1").traits)

    def test_reshape_there_and_back(self) -> None:
        tree, before = node(VGPU=8), holding(3)
        d = driver(gpus={"one": 4, "two": 4})
        with self.assertRaises(ReshapeNeeded):
            d.update_provider_tree(FakeCall(), again(tree), "cn1", None)
        after = self.update(d, tree, before)
        self.assertIsNone(tree.find("cn1").inventory("VGPU"))
        self.assertEqual({GUEST: {child_uuid(ROOT, "cn1_one"): {"VGPU": 3}}}, after.resources)

        d.configure(FakeCall(), {"gpus": {"one": 4, "two": 4}, "gpu_layout": "node"}, HostInfo("cn1"))
        with self.assertRaises(ReshapeNeeded):
            d.update_provider_tree(FakeCall(), again(tree), "cn1", None)
        back = self.update(d, tree, after)
        self.assertEqual(before.resources, back.resources)
        self.assertEqual(["cn1"], [p.name for p in tree])

    def test_steps_from_every_layout(self) -> None:
        d = driver(gpus={"one": 4, "two": 4})
        self.assertEqual(2, d.layout_version())
        for first, former in ((0, "CUSTOM_VGPU"), (0, "VGPU"), (1, "VGPU")):
            tree, before = node(**{former: 8}), holding(3, former)
            renames, allocations = {}, before
            for at in range(first, d.layout_version()):
                allocations = d.reshape(FakeCall(), tree, "cn1", at, allocations)
                renames |= d.class_renames()
            self.assertEqual({"CUSTOM_VGPU": "VGPU"} if former != "VGPU" else {}, renames)
            self.assertEqual({GUEST: {child_uuid(ROOT, "cn1_one"): {"VGPU": 3}}}, allocations.resources)
            walked = again(tree)
            d.update_provider_tree(FakeCall(), walked, "cn1", allocations)
            at_once = node(**{former: 8})
            with self.assertRaises(ReshapeNeeded):
                d.update_provider_tree(FakeCall(), again(at_once), "cn1", None)
            self.assertEqual(allocations.resources, d.update_provider_tree(FakeCall(), at_once, "cn1", before).resources)
            self.assertEqual(renames, d.class_renames())
            self.assertEqual(walked.message(), at_once.message())
            for at in range(d.layout_version()):  # in the present layout they change nothing
                self.assertEqual(allocations.resources, d.reshape(FakeCall(), walked, "cn1", at, allocations).resources)
                self.assertEqual((at_once.message(), {}), (walked.message(), d.class_renames()))

    def test_a_step_on_a_new_node_changes_nothing(self) -> None:
        tree, d = node(), driver(gpus={"one": 4})
        for at in range(2):
            d.reshape(FakeCall(), tree, "cn1", at, Allocations(pb.Allocations()))
        self.assertEqual(node().message(), tree.message())

    def test_vgpus_on_the_node_are_a_choice_and_no_layout(self) -> None:
        d, tree = driver(gpus={"one": 4}, gpu_layout="node"), node(CUSTOM_VGPU=4)
        self.assertEqual(0, d.layout_version())
        self.assertEqual({GUEST: {ROOT: {"VGPU": 3}}}, self.update(d, tree, holding(3, "CUSTOM_VGPU")).resources)

    def test_gone_for_good_is_what_the_operator_says(self) -> None:
        d = driver(former_nodes=["old"])
        self.assertEqual([True, False, False], [d.node_deleted(FakeCall(), Node(n)) for n in ("old", "cn1", "other")])

    def test_capabilities_name_one_architecture(self) -> None:
        traits = driver().capabilities("cn1")
        self.assertLessEqual(sum(traits.values()), 1)
        self.assertIs(False, traits["COMPUTE_NET_ATTACH_INTERFACE"])

    def test_a_reshape_without_room_names_the_guest(self) -> None:
        with self.assertRaises(ReshapeFailed) as failed:
            driver(gpus={"one": 2}).update_provider_tree(FakeCall(), node(VGPU=8), "cn1", holding(3))
        self.assertEqual([GUEST], [o.consumer for o in failed.exception.violations])


class Configuration(unittest.TestCase):
    def test_mistakes_are_named_by_their_key(self) -> None:
        for raw, key in [
            ({"nod": "x"}, "nod"), ({"node": ""}, "node"), ({"node": 1}, "node"), ({"disk": "here"}, "disk"),
            ({"reserved_memory_mb": -1}, "reserved_memory_mb"), ({"reserved_memory_mb": True}, "reserved_memory_mb"),
            ({"cpu_allocation_ratio": "4"}, "cpu_allocation_ratio"),
            ({"cpu_allocation_ratio": float("nan")}, "cpu_allocation_ratio"),
            ({"traits": "A"}, "traits"), ({"traits": ["A", "b"]}, "traits[1]"), ({"gpus": []}, "gpus"),
            ({"gpus": {"a": 0}}, "gpus.a"), ({"gpus": {"a/b": 1}}, "gpus.a/b"), ({"gpu_layout": "numa"}, "gpu_layout"),
            ({"look_every": 0}, "look_every"), ({"images": "x"}, "images"),
            ({"former_nodes": "a"}, "former_nodes"), ({"node": "a", "former_nodes": ["b", "a"]}, "former_nodes[1]"),
        ]:
            with self.subTest(raw), self.assertRaises(ConfigError) as wrong:
                parse(raw)
            self.assertEqual(key, wrong.exception.key)

    def test_a_mistake_leaves_the_former_configuration(self) -> None:
        d = driver(node="here")
        with self.assertRaises(ConfigError):
            d.configure(FakeCall(), {"node": ""}, HostInfo("cn1"))
        self.assertEqual(["here"], [n.name for n in d.available_nodes(FakeCall())])

    def test_before_it_nothing_is_known(self) -> None:
        with self.assertRaises(NotReady):
            MachineDriver().available_nodes(FakeCall())


class Machine(unittest.TestCase):
    def test_this_one(self) -> None:
        hardware = look("/")
        self.assertGreater(hardware.processors, 0)
        self.assertGreater(hardware.memory_mb, 0)

    def test_what_cannot_be_looked_at_is_not_ready(self) -> None:
        with self.assertRaises(NotReady):
            look("/no/such/path")
        with tempfile.NamedTemporaryFile() as empty, self.assertRaises(NotReady):
            look("/", meminfo=empty.name)


if __name__ == "__main__":
    unittest.main()
