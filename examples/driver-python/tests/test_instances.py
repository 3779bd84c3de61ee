# SPDX-License-Identifier: Apache-2.0
"""Instances: what the SDK does over a connection, and the files that are this driver's instances."""

import json
import resource
import tempfile
import threading
import unittest
from pathlib import Path

import grpc

from compute_driver import (Flavor, HostInfo, Instance, InstanceFault, InstanceNotFound, InstanceSpec, Node, NotReady, PowerState, Tree,
                            Unsupported)
from compute_driver import driver_pb2 as pb
from machine.driver import MachineDriver
from machine.hardware import Hardware
from serving import PATIENCE, QUIET, ROOT, ServingCase, raising, tree

ONE = "aaaaaaaa-0000-0000-0000-000000000001"
TWO = "aaaaaaaa-0000-0000-0000-000000000002"


class Manager:
    """Does with instances what the test says."""

    name, version = "manager", "1"

    def __init__(self) -> None:
        self.specs = []
        self.making = lambda spec: None
        self.powered = lambda uuid, to, hard: Instance(uuid, power=to)
        self.there = lambda: []

    def config_schema(self):
        return None

    def configure(self, call, config, host):
        pass

    def available_nodes(self, call):
        return [Node("cn1")]

    def update_provider_tree(self, call, tree, node, allocations):
        return None

    def instances(self, call, node):
        return self.there()

    def spawn(self, call, node, spec, tree):
        self.specs.append(spec)
        return self.making(spec) or Instance(spec.uuid, spec.name, PowerState.RUNNING, "h\udcff")

    def destroy(self, call, node, uuid):
        self.powered(uuid, None, None)

    def set_power(self, call, node, uuid, to, hard):
        return self.powered(uuid, to, hard)

    def watch_instances(self, call, changed):
        changed("cn1", ONE)
        changed("cn1", ONE)
        while not call.wait(PATIENCE):
            pass


def spawn(uuid: str = ONE, **fields) -> pb.SpawnInstanceRequest:
    return pb.SpawnInstanceRequest(node="cn1", tree=tree(), spec=pb.InstanceSpec(uuid=uuid, name="web", **fields))


class OverAConnection(ServingCase):
    def setUp(self) -> None:
        self.serve(Manager())
        self.call("Plugin/Configure", pb.ConfigureRequest()).result()

    def test_they_are_announced(self) -> None:
        self.assertEqual(["instance_events", "instances"], list(self.call("Plugin/Info", pb.InfoRequest()).result().capabilities))

    def test_a_spec_arrives_whole(self) -> None:
        request = spawn(ONE.upper(), project_id="p", image="i", user_data=b"\xff", key_name="k", public_key="ssh-rsa A", config_drive=True, metadata={"a": "b"}, image_properties={"c": "d"},
                        flavor=pb.Flavor(name="f", vcpus=1, memory_mb=2, root_gb=3, ephemeral_gb=4, swap_mb=5, extra_specs={"e": "f"}),
                        allocations={ROOT: pb.Resources(amounts={"VCPU": 1})})
        made = self.call("Instances/Spawn", request).result().instance
        self.assertEqual(pb.Instance(uuid=ONE, name="web", power_state=1, hypervisor_name="h?"), made)
        self.assertEqual([InstanceSpec(ONE, "web", "p", "", Flavor("f", 1, 2, 3, 4, 5, {"e": "f"}), {ROOT: {"VCPU": 1}}, "i", {"c": "d"},
                                       {"a": "b"}, b"\xff", "k", "ssh-rsa A", True)], self.driver.specs)

    def test_what_cannot_be_does_not_reach_the_driver(self) -> None:
        wrong = [
            spawn("../../etc"), spawn(""), spawn(flavor=pb.Flavor(vcpus=-1)), spawn(user_data=b"x" * (64 * 1024 + 1)),
            spawn(public_key="x" * (16 * 1024 + 1)),
            spawn(allocations={ONE: pb.Resources(amounts={"VCPU": 1})}), spawn(allocations={ROOT: pb.Resources(amounts={"VCPU": 0})}),
            pb.SpawnInstanceRequest(spec=pb.InstanceSpec(uuid=ONE), tree=tree()),
        ]
        for request in wrong:
            self.assertEqual(grpc.StatusCode.INVALID_ARGUMENT, self.failure(self.call("Instances/Spawn", request))[0])
        for to in (0, 3, 99):
            request = pb.SetInstancePowerRequest(node="cn1", uuid=ONE, power_state=to)
            self.assertEqual(grpc.StatusCode.INVALID_ARGUMENT, self.failure(self.call("Instances/SetPower", request))[0])
        self.assertEqual([], self.driver.specs)

    def test_answers_are_typed_and_about_that_instance(self) -> None:
        stop = pb.SetInstancePowerRequest(node="cn1", uuid=ONE, power_state=4, hard=True)
        self.assertEqual(4, self.call("Instances/SetPower", stop).result().instance.power_state)
        for error, code, detail in (
            (InstanceNotFound(ONE), grpc.StatusCode.NOT_FOUND, pb.InstanceNotFound(uuid=ONE)),
            (InstanceFault("", "x"), grpc.StatusCode.FAILED_PRECONDITION, pb.InstanceFault(uuid=ONE, reason="x")),
            (NotReady("later"), grpc.StatusCode.FAILED_PRECONDITION, pb.NotReady(reason="later")),
            (Unsupported("no"), grpc.StatusCode.UNIMPLEMENTED, "no"),
        ):
            self.driver.powered = raising(error)
            self.assertEqual((code, detail), self.failure(self.call("Instances/SetPower", stop)))
        self.driver.powered = lambda uuid, to, hard: Instance(TWO, power=to)
        self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.call("Instances/SetPower", stop))[0])
        self.driver.there = lambda: [Instance(ONE), Instance(ONE)]
        self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.call("Instances/List", pb.ListInstancesRequest(node="cn1")))[0])

    def test_none_before_the_configuration(self) -> None:
        self.serve(Manager())
        self.assertIsInstance(self.failure(self.call("Instances/Spawn", spawn()))[1], pb.NotReady)
        self.assertEqual([], self.driver.specs)

    def test_calls_about_one_take_turns_and_nothing_else_waits(self) -> None:
        inside, free = threading.Event(), threading.Event()

        def making(spec):
            if spec.uuid == ONE:
                inside.set()
                free.wait(PATIENCE)

        self.driver.making = making
        slow = self.call("Instances/Spawn", spawn(ONE))
        inside.wait(PATIENCE)
        late = self.call("Instances/Destroy", pb.DestroyInstanceRequest(node="cn1", uuid=ONE), timeout=0.2)
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(late)[0])
        self.call("Instances/Spawn", spawn(TWO)).result()
        self.call("Driver/AvailableNodes", pb.AvailableNodesRequest()).result()
        self.call("Plugin/Configure", pb.ConfigureRequest()).result()
        refused = self.call("Plugin/Shutdown", pb.ShutdownRequest(grace_ms=50))
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(refused)[0])
        free.set()
        self.assertEqual(ONE, slow.result().instance.uuid)

    def test_events(self) -> None:
        stream = self.stream("Instances/Watch", pb.WatchInstancesRequest(heartbeat_ms=20))
        seen = [next(stream) for _ in range(4)]
        self.assertEqual(["heartbeat", "instance"], [e.WhichOneof("event") for e in seen[:2]])
        self.assertEqual(("cn1", ONE), (seen[1].instance.node, seen[1].instance.uuid))
        self.assertEqual("heartbeat", seen[3].WhichOneof("event"))
        stream.cancel()


class FakeCall:
    """A call that is given up after some looks."""

    log = QUIET

    def __init__(self, looks: int = 1000) -> None:
        self.looks, self.between = looks, lambda look: None

    def check(self, doing: str = "") -> None:
        self.looks -= 1
        if self.looks < 0:
            raise InterruptedError(doing)

    def wait(self, _seconds: float) -> bool:
        self.looks -= 1
        self.between(self.looks)
        return self.looks < 0


class Files(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.state = Path(scratch.name) / "state"
        self.images = Path(scratch.name) / "images"
        self.images.mkdir()
        (self.images / "small").write_bytes(b"boot" * 1000)
        self.driver = self.started()
        self.tree = Tree(tree())
        self.tree.find("cn1").message.inventories["VCPU"].total = 8

    def started(self, **config) -> MachineDriver:
        driver = MachineDriver(look=lambda _path: Hardware(8, 4096, 100))
        driver.configure(FakeCall(), {"images": str(self.images), **config}, HostInfo("cn1", str(self.state)))
        return driver

    def test_instances_of_a_former_release_are_taken_along(self) -> None:
        self.spawn(self.spec())  # in the directory that all drivers shared
        own = self.state / "drivers" / "python"
        own.mkdir(parents=True)
        for _ in range(2):
            self.driver.configure(FakeCall(), {"images": str(self.images)}, HostInfo("cn1", str(own)))
            self.assertEqual([ONE], [i.uuid for i in self.driver.instances(FakeCall(), "cn1")])
        self.assertEqual([own.parent], list(self.state.iterdir()))

    def spec(self, uuid: str = ONE, **fields) -> InstanceSpec:
        return InstanceSpec(uuid, **{"name": "web", "flavor": Flavor(root_gb=1), "allocations": {ROOT: {"VCPU": 1}}, **fields})

    def spawn(self, spec: InstanceSpec, call: FakeCall | None = None) -> Instance:
        return self.driver.spawn(call or FakeCall(), "cn1", spec, self.tree)

    def listed(self) -> dict[str, PowerState]:
        return {i.uuid: i.power for i in self.driver.instances(FakeCall(), "cn1")}

    def test_from_spawn_to_destroy(self) -> None:
        made = self.spawn(self.spec(image="small"))
        self.assertEqual(Instance(ONE, "web", PowerState.RUNNING, "files-aaaaaaaa"), made)
        disk = self.state / "instances" / ONE / "root.disk"
        with disk.open("rb") as content:
            self.assertEqual((1 << 30, b"boot"), (disk.stat().st_size, content.read(4)))
        self.assertEqual(PowerState.SHUTDOWN, self.driver.set_power(FakeCall(), "cn1", ONE, PowerState.SHUTDOWN, hard=False).power)
        self.driver = self.started()  # another process
        self.assertEqual(PowerState.SHUTDOWN, self.spawn(self.spec()).power, "what a former spawn made is left as it is")
        for _ in range(2):
            self.driver.destroy(FakeCall(), "cn1", ONE)
            self.assertEqual({}, self.listed())
        self.assertEqual([], list((self.state / "instances").iterdir()))

    def test_an_interrupted_spawn_is_seen_and_completed_or_removed(self) -> None:
        for end in ("spawn", "destroy"):
            with self.assertRaises(InterruptedError):
                self.spawn(self.spec(image="small"), FakeCall(looks=0))
            self.assertEqual({ONE: PowerState.NOSTATE}, self.listed())
            with self.assertRaises(InstanceFault):
                self.driver.set_power(FakeCall(), "cn1", ONE, PowerState.RUNNING, hard=False)
            if end == "spawn":
                self.assertEqual(PowerState.RUNNING, self.spawn(self.spec(image="small")).power)
            self.driver.destroy(FakeCall(), "cn1", ONE)
            self.assertEqual({}, self.listed())

    def test_what_cannot_be_made_leaves_nothing(self) -> None:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 40, limits[1]))  # some file systems hold 2 EiB in a sparse file
        for wrong in ({"image": "none"}, {"image": "../state"}, {"image": ".."}, {"flavor": Flavor(root_gb=2**31 - 1)},
                      {"flavor": Flavor(extra_specs={"hw:cpu_policy": "dedicated"})}):
            with self.subTest(wrong), self.assertRaises(InstanceFault) as fault:
                self.spawn(self.spec(**wrong))
            self.assertNotIn(str(self.images), fault.exception.reason)
            self.assertEqual({}, self.listed())

    def test_what_is_not_there(self) -> None:
        with self.assertRaises(InstanceNotFound):
            self.driver.set_power(FakeCall(), "cn1", ONE, PowerState.RUNNING, hard=True)
        (self.state / "instances").mkdir(parents=True)
        (self.state / "instances" / "lost+found").mkdir()
        self.assertEqual({}, self.listed())

    def test_a_record_that_cannot_be_read_is_no_empty_list(self) -> None:
        self.spawn(self.spec())
        for broken in ("{", "{}", '{"uuid":"x"}', '[]'):
            (self.state / "instances" / ONE / "instance.json").write_text(broken)
            for ask in (lambda: self.driver.instances(FakeCall(), "cn1"), lambda: self.driver.guests(FakeCall(), self.tree, "cn1"),
                        lambda: self.spawn(self.spec())):
                with self.subTest(broken), self.assertRaises(NotReady):
                    ask()

    def test_guests_are_the_instances_with_what_they_were_granted(self) -> None:
        self.spawn(self.spec())
        self.spawn(self.spec(TWO, allocations={ROOT: {"VGPU": 1}}))
        with self.assertRaises(InterruptedError):
            self.spawn(self.spec(ROOT, image="small"), FakeCall(looks=0))
        guests = {g.uuid: g.resources for g in self.driver.guests(FakeCall(), self.tree, "cn1")}
        self.assertEqual({ONE: {ROOT: {"VCPU": 1}}, TWO: None, ROOT: None}, guests)

    def test_without_a_place_it_manages_none(self) -> None:
        self.driver.configure(FakeCall(), {}, HostInfo("cn1"))
        with self.assertRaises(Unsupported):
            self.listed()

    def test_it_notices_changes_by_another_process(self) -> None:
        self.spawn(self.spec())
        record = self.state / "instances" / ONE / "instance.json"

        def crash(look: int) -> None:
            if look == 1:
                record.write_text(json.dumps({**json.loads(record.read_text()), "power": "CRASHED"}))

        call, seen = FakeCall(looks=4), []
        call.between = crash
        self.driver.watch_instances(call, lambda *event: seen.append(event))
        self.assertEqual([("", ""), ("cn1", ONE)], seen)
        self.assertEqual({ONE: PowerState.CRASHED}, self.listed())


if __name__ == "__main__":
    unittest.main()
