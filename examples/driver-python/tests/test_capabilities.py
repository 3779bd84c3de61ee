# SPDX-License-Identifier: Apache-2.0
"""The optional interfaces over a connection: announced as capabilities, and their results checked."""

import contextlib
import io
import json
import unittest
from unittest import mock

import grpc

from compute_driver import Driver, Failure, Guest, Hypervisor, LayoutVersioner, Node, NotReady, ReshapeNeeded, Unsupported, DriverWarning
from compute_driver import driver_pb2 as pb
from compute_driver.events import MOST, Events
from compute_driver.serving import serve
from serving import ROOT, ServingCase, raising, tree

GUEST = "99999999-2222-3333-4444-555555555555"


class Capable(Driver):
    """Has every capability but instances."""

    name, version = "able", "1"

    def __init__(self) -> None:
        self.layout, self.renames, self.problem = 3, {"CUSTOM_A": "FPGA"}, ""
        self.listed = lambda: [Guest(GUEST, "g\udc80", resources={ROOT: {"VCPU": 2}}), Guest(ROOT, resources_unknown="cn1\udc80 is busy"),
                               Guest(ROOT, resources={}, from_flavor=True)]
        self.step = lambda tree, at, allocations: None
        self.gone = True
        self.runs = Hypervisor("Acme\udc80" + "x" * 300, 7002001)
        self.warned = lambda: []

    def configure(self, call, config, host):
        pass

    def available_nodes(self, call):
        return [Node("cn1")]

    def update_provider_tree(self, call, tree, node, allocations):
        return None

    def health(self, call):
        if self.problem:
            raise NotReady(self.problem)
        return None

    def layout_version(self):
        return self.layout

    def reshape(self, call, tree, node, from_layout, allocations):
        return self.step(tree, from_layout, allocations)

    def class_renames(self):
        return self.renames

    def capabilities(self, node):
        return {"COMPUTE_ARCH_X86_64": True, "COMPUTE_ARCH_S390X": False}

    def product_names(self, node):
        return {node: "Acme\udc80" + "x" * 300}

    def hypervisor(self, node):
        return self.runs

    def guests(self, call, tree, node):
        return self.listed()

    def node_deleted(self, call, node):
        return self.gone

    def warnings(self):
        return self.warned()


class Former(Driver):
    """Has its layout version by the name that the method had up to 0.2.0."""

    name, version = "former", "1"

    def configure(self, call, config, host):
        pass

    def available_nodes(self, call):
        return [Node("cn1")]

    def update_provider_tree(self, call, tree, node, allocations):
        return None

    def shape_version(self):
        return 2

    def reshape(self, call, tree, node, from_shape, allocations):
        tree.find("cn1").add_traits([f"CUSTOM_FROM_{from_shape}"])


class FormerDerived(Former, LayoutVersioner):
    """Says so to a type checker too."""


class FormerOwn(Former):
    """Has an attribute of its own by the name that the method has now."""

    layout_version = 7


class Forgetful(Capable, LayoutVersioner):
    """Derives from the class, and has no layout_version."""

    layout_version = LayoutVersioner.layout_version


class Capabilities(ServingCase):
    def setUp(self) -> None:
        self.serve(Capable())

    def update(self, reshape: bool):
        request = pb.UpdateProviderTreeRequest(node="cn1", tree=tree())
        if reshape:
            request.allocations.SetInParent()
        return self.call("Driver/UpdateProviderTree", request)

    def step(self, at: int):
        return self.call("Driver/ReshapeStep", pb.ReshapeStepRequest(node="cn1", tree=tree(), from_shape=at, allocations=pb.Allocations()))

    def test_they_are_announced(self) -> None:
        want = ["capabilities", "guests", "health", "hypervisor", "layouts", "node_deleted", "product_names", "warnings", "shapes"]
        self.assertEqual(want, list(self.call("Plugin/Info", pb.InfoRequest()).result().capabilities))
        printed = io.StringIO()
        with mock.patch("sys.argv", ["driver", "--info"]), contextlib.redirect_stdout(printed), self.assertRaises(SystemExit):
            serve(self.driver, 1)
        self.assertEqual(want, json.loads(printed.getvalue())["capabilities"])

    def test_the_layout_version_comes_with_the_configuration(self) -> None:
        self.assertEqual(3, self.call("Plugin/Configure", pb.ConfigureRequest()).result().shape_version)
        for wrong in (-1, 10_000):
            self.driver.layout = wrong
            self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.call("Plugin/Configure", pb.ConfigureRequest()))[0])

    def test_drivers_with_the_former_name_have_layout_versions(self) -> None:
        for driver in Former(), FormerDerived(), FormerOwn():
            with self.subTest(type(driver).__name__):
                self.serve(driver)
                self.assertEqual(["layouts", "shapes"], list(self.call("Plugin/Info", pb.InfoRequest()).result().capabilities))
                self.assertEqual(2, self.call("Plugin/Configure", pb.ConfigureRequest()).result().shape_version)
                self.assertEqual(["CUSTOM_FROM_1"], list(self.step(1).result().tree.providers[0].traits))

    def test_a_missing_layout_version_is_named(self) -> None:
        self.serve(Forgetful())
        code, text = self.failure(self.call("Plugin/Configure", pb.ConfigureRequest()))
        self.assertEqual(grpc.StatusCode.INTERNAL, code)
        self.assertIn("Forgetful has no method layout_version", text)

    def test_steps(self) -> None:
        def step(tree, at, allocations):
            tree.find("cn1").add_traits([f"CUSTOM_FROM_{at}"])
            return allocations

        self.driver.step = step
        reply = self.step(2).result()
        self.assertEqual(["CUSTOM_FROM_2"], list(reply.tree.providers[0].traits))
        self.assertTrue(reply.HasField("allocations"))
        self.assertEqual({"CUSTOM_A": "FPGA"}, dict(reply.class_renames))
        for wrong in (-1, 3, 9999):
            self.assertEqual(grpc.StatusCode.INVALID_ARGUMENT, self.failure(self.step(wrong))[0])
        self.driver.step = raising(ReshapeNeeded("again"))
        self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.step(1))[0])

    def test_renames_come_with_allocations_only_and_make_sense(self) -> None:
        self.assertEqual({}, dict(self.update(False).result().class_renames))
        self.assertEqual({"CUSTOM_A": "FPGA"}, dict(self.update(True).result().class_renames))
        for wrong in ({"A": "A"}, {"A": "B", "B": "C"}, {"a": "B"}, {"A": ""}):
            self.driver.renames = wrong
            self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.update(True))[0], wrong)

    def test_capabilities_come_with_every_tree(self) -> None:
        self.assertEqual({"COMPUTE_ARCH_X86_64": True, "COMPUTE_ARCH_S390X": False}, dict(self.update(False).result().capability_traits))

    def test_product_names_come_with_every_tree(self) -> None:
        self.assertEqual({"cn1": "Acme?" + "x" * 195}, dict(self.update(False).result().product_names))

    def test_the_hypervisor_comes_with_every_tree(self) -> None:
        self.assertEqual(pb.Hypervisor(type="Acme?" + "x" * 95, version=7002001), self.update(False).result().hypervisor)
        for version in (-1, 2**31):
            self.driver.runs = Hypervisor("Acme", version)
            self.assertEqual(pb.Hypervisor(type="Acme"), self.update(False).result().hypervisor)
        self.driver.runs = None
        self.assertFalse(self.update(False).result().HasField("hypervisor"))

    def test_guests(self) -> None:
        request = pb.GuestsRequest(node="cn1", tree=tree())
        known, unknown, nothing = self.call("Driver/Guests", request).result().guests
        self.assertEqual((GUEST, "g?", 2), (known.uuid, known.name, known.resources.resources[ROOT].amounts["VCPU"]))
        self.assertEqual((False, True), (unknown.HasField("resources"), nothing.HasField("resources")))
        self.assertEqual(("", "cn1? is busy", ""), (known.resources_unknown, unknown.resources_unknown, nothing.resources_unknown))
        self.assertEqual((False, False, True), (known.requested, unknown.requested, nothing.requested))
        self.driver.listed = raising(Unsupported("not with this configuration"))
        self.assertEqual((grpc.StatusCode.UNIMPLEMENTED, "not with this configuration"), self.failure(self.call("Driver/Guests", request)))

    def test_a_node_is_deleted_only_if_the_driver_returns_true(self) -> None:
        for returned, deleted in ((True, True), (False, False), (None, False), ("maybe", False)):
            self.driver.gone = returned
            self.assertEqual(deleted, self.call("Driver/NodeDeleted", pb.NodeDeletedRequest()).result().deleted)

    def test_health_is_a_problem_and_no_error(self) -> None:
        self.assertEqual("", self.call("Plugin/Health", pb.HealthRequest()).result().problem)
        self.driver.problem = "the daemon is down"
        self.assertEqual("the daemon is down", self.call("Plugin/Health", pb.HealthRequest()).result().problem)

    def test_warnings_come_with_health_and_are_sanitized(self) -> None:
        def warnings() -> list[tuple[str, str]]:
            return [(w.name, w.text) for w in self.call("Plugin/Health", pb.HealthRequest()).result().warnings]

        self.assertEqual([], warnings())
        self.driver.problem = "the daemon is down"
        self.driver.warned = lambda: [DriverWarning("numa-memory", "it differs"), DriverWarning("Fan #7", "it is\udc80loud"), DriverWarning("fan--7", "and old"),
                                      DriverWarning("", "?"), DriverWarning("b" + "x" * 100, "ä" * 2001)]
        self.assertEqual([("b" + "x" * 79, "ä" * 1997 + "..."), ("fan--7", "it is?loud; and old"), ("numa-memory", "it differs"),
                          ("unnamed", "?")], warnings())
        for n, last in ((100, ("w-0099", "x")), (101, ("more-warnings", "and 2 more warnings, which are not shown"))):
            self.driver.warned = lambda n=n: [DriverWarning(f"w-{i:04}", "x") for i in range(n)]
            self.assertEqual((100, last), (len(warnings()), warnings()[-1]))
        self.driver.warned = lambda: None
        self.assertEqual([], warnings())


class Queue(unittest.TestCase):
    def test_it_keeps_order_and_nothing_twice(self) -> None:
        events = Events("")
        for event in "abab":
            events.put(event)
        self.assertEqual(["a", "b", None], [events.take(0)[0] for _ in range(3)])

    def test_it_is_bounded(self) -> None:
        events = Events("")
        for i in range(MOST + 5):
            events.put(str(i + 1))
        self.assertEqual(("", None), events.take(0))
        self.assertEqual((None, None), events.take(0))

    def test_its_end_comes_once(self) -> None:
        events = Events("")
        events.put("a")
        events.close("first")
        events.close("second")
        self.assertEqual((None, "first"), events.take(0))


class Unready(unittest.TestCase):
    def test_an_incomplete_interface_cannot_be_derived(self) -> None:
        from compute_driver import InstanceManager

        class Half(InstanceManager):
            def instances(self, call, node):
                raise Failure("never")

        with self.assertRaises(TypeError):
            Half()


if __name__ == "__main__":
    unittest.main()
