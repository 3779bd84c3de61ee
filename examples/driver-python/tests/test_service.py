# SPDX-License-Identifier: Apache-2.0
"""The protocol, over a connection: what a driver does and raises, as the agent sees it."""

import json
import sys
import threading
import unittest

import grpc

from compute_driver import ConfigError, Driver, Node, NotReady, ReshapeFailed, ReshapeNeeded, Violation, handshake
from compute_driver import driver_pb2 as pb
from serving import PATIENCE, ROOT, ServingCase, raising, tree


class Scripted(Driver):
    """Does in each call what the test says."""

    name, version = "scripted", "1"

    def __init__(self) -> None:
        self.nodes = lambda call: [Node("cn1")]
        self.update = lambda call, tree, allocations: None
        self.tidied = False

    def configure(self, call, config, host):
        raise ConfigError("a.b", "is wrong")

    def available_nodes(self, call):
        return self.nodes(call)

    def update_provider_tree(self, call, tree, node, allocations):
        return self.update(call, tree, allocations)

    def shutdown(self, call):
        self.tidied = True


class Watching(Scripted):
    def watch(self, call, changed):
        changed("cn1")
        while not call.wait(PATIENCE):
            pass
        self.unwatched.set()

    unwatched = threading.Event()


def update(reshape: bool = False) -> pb.UpdateProviderTreeRequest:
    request = pb.UpdateProviderTreeRequest(node="cn1", tree=tree())
    if reshape:
        request.allocations.SetInParent()
    return request


class Calls(ServingCase):
    def setUp(self) -> None:
        self.serve(Scripted())

    def test_answers_are_typed(self) -> None:
        self.driver.update = raising(ReshapeNeeded("it moves"))
        code, detail = self.failure(self.call("Driver/UpdateProviderTree", update()))
        self.assertEqual((grpc.StatusCode.FAILED_PRECONDITION, pb.ReshapeNeeded(reason="it moves")), (code, detail))

        self.driver.update = raising(ReshapeFailed("no", [Violation("c", "p", "VGPU", "too many")] * 501))
        code, detail = self.failure(self.call("Driver/UpdateProviderTree", update(reshape=True)))
        violation = pb.Offender(consumer_uuid="c", provider_uuid="p", resource_class="VGPU", problem="too many")
        self.assertEqual(violation, detail.offenders[0])
        self.assertEqual((501, "and 1 more"), (len(detail.offenders), detail.offenders[500].problem))

        self.driver.nodes = raising(NotReady("x" * 100_000))
        code, detail = self.failure(self.call("Driver/AvailableNodes", pb.AvailableNodesRequest()))
        self.assertTrue(isinstance(detail, pb.NotReady) and len(detail.reason) < 20_000)

        code, detail = self.failure(self.call("Plugin/Configure", pb.ConfigureRequest(config_json=b"{}")))
        self.assertEqual((grpc.StatusCode.INVALID_ARGUMENT, pb.ConfigError(key="a.b", problem="is wrong")), (code, detail))
        for wrong in (b"{", b"[]", b"\xff", b'{"a":NaN}', b"[" * (sys.getrecursionlimit() * 40)):
            self.assertEqual("", self.failure(self.call("Plugin/Configure", pb.ConfigureRequest(config_json=wrong)))[1].key)

    def test_a_defect_fails_its_call_alone(self) -> None:
        self.driver.update = lambda *_: {}["lost"]
        code, text = self.failure(self.call("Driver/UpdateProviderTree", update()))
        self.assertEqual(grpc.StatusCode.INTERNAL, code)
        self.assertIn("KeyError in UpdateProviderTree", text)
        line = json.loads(self.out.getvalue())
        self.assertEqual(("error", "UpdateProviderTree"), (line["@level"], line["call"]))
        self.assertIn("Traceback", line["stack"])
        self.assertEqual("cn1", self.call("Driver/AvailableNodes", pb.AvailableNodesRequest()).result().nodes[0].name)

    def test_the_request_id_is_in_the_call_and_its_log(self) -> None:
        request = "req-11111111-2222-4333-8444-555555555555"
        seen = []

        def nodes(call):
            seen.append(call.request_id)
            call.log.warn("asked")
            return [Node("cn1")]

        self.driver.nodes = nodes
        for sent in (((handshake.REQUEST_ID, request),), (), ((handshake.REQUEST_ID, "no id"),)):
            self.call("Driver/AvailableNodes", pb.AvailableNodesRequest(), metadata=sent).result()
        self.assertEqual([request, "", ""], seen)
        self.assertEqual([request, None, None], [json.loads(line).get("request_id") for line in self.out.getvalue().splitlines()])

    def test_a_defect_in_every_call_does_not_bury_the_log(self) -> None:
        self.driver.update = lambda *_: {}["lost"]
        for _ in range(100):
            self.failure(self.call("Driver/UpdateProviderTree", update()))
        logged = [json.loads(line) for line in self.out.getvalue().splitlines()]
        self.assertEqual([None, 2, 4, 8, 16, 32, 64], [line.get("times") for line in logged])
        self.assertEqual(1, sum("stack" in line for line in logged))

    def test_whatever_is_raised_fails_its_call_alone(self) -> None:
        class Mute(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        for error in (SystemExit(3), KeyboardInterrupt(), Mute(), RecursionError("deep"), RuntimeError("x" * 1_000_000), MemoryError()):
            self.driver.update = raising(error)
            code, text = self.failure(self.call("Driver/UpdateProviderTree", update()))
            self.assertEqual(grpc.StatusCode.INTERNAL, code, error)
            self.assertIn(type(error).__name__, text)
            self.assertLess(len(text), 20_000)
        self.assertEqual("cn1", self.call("Driver/AvailableNodes", pb.AvailableNodesRequest()).result().nodes[0].name)
        for line in self.out.getvalue().splitlines():
            self.assertLess(len(line), 64 << 10)
            self.assertEqual("error", json.loads(line)["@level"])

    def test_allocations_come_back_if_and_only_if_they_were_given(self) -> None:
        self.assertFalse(self.call("Driver/UpdateProviderTree", update()).result().HasField("allocations"))
        self.assertTrue(self.call("Driver/UpdateProviderTree", update(reshape=True)).result().HasField("allocations"))
        self.driver.update = lambda call, tree, allocations: allocations or object()
        self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.call("Driver/UpdateProviderTree", update()))[0])

    def test_one_call_at_a_time_and_a_deadline_for_those_that_wait(self) -> None:
        inside, free = threading.Event(), threading.Event()

        def hang(*_):
            inside.set()
            free.wait(PATIENCE)

        self.driver.update = hang
        slow = self.call("Driver/UpdateProviderTree", update())
        inside.wait(PATIENCE)
        late = self.call("Driver/AvailableNodes", pb.AvailableNodesRequest(), timeout=0.2)
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(late)[0])
        self.assertEqual("scripted", self.call("Plugin/Info", pb.InfoRequest()).result().name)  # beside anything
        free.set()
        slow.result()

    def test_a_driver_learns_that_the_agent_gave_up(self) -> None:
        inside, learned = threading.Event(), threading.Event()

        def patient(call, *_):
            inside.set()
            if call.wait(PATIENCE):
                learned.set()
            call.check()

        self.driver.update = patient
        call = self.call("Driver/UpdateProviderTree", update())
        inside.wait(PATIENCE)
        call.cancel()
        self.assertTrue(learned.wait(PATIENCE))

    def test_shutdown_drains_tidies_up_and_refuses(self) -> None:
        inside, free = threading.Event(), threading.Event()

        def hang(*_):
            inside.set()
            free.wait(PATIENCE)

        self.driver.update = hang
        slow = self.call("Driver/UpdateProviderTree", update())
        inside.wait(PATIENCE)
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(self.call("Plugin/Shutdown", pb.ShutdownRequest(grace_ms=50)))[0])
        self.assertFalse(self.driver.tidied)
        end = self.call("Plugin/Shutdown", pb.ShutdownRequest(grace_ms=PATIENCE * 1000))
        self.assertEqual(grpc.StatusCode.UNAVAILABLE, self.failure(self.call("Plugin/Info", pb.InfoRequest()))[0])
        free.set()
        slow.result()
        end.result()
        self.assertTrue(self.driver.tidied)

    def test_abilities_that_are_absent_are_not_announced_and_unimplemented(self) -> None:
        self.assertEqual(["shutdown"], list(self.call("Plugin/Info", pb.InfoRequest()).result().capabilities))
        for method in ("Watch", "Guests", "NodeDeleted", "ReshapeStep"):
            request = getattr(pb, method + "Request")()
            self.assertEqual(grpc.StatusCode.UNIMPLEMENTED, self.failure(self.call("Driver/" + method, request))[0])
        self.assertEqual(grpc.StatusCode.UNIMPLEMENTED, self.failure(self.call("Instances/List", pb.ListInstancesRequest(node="cn1")))[0])

    def test_watch(self) -> None:
        self.serve(Watching())
        stream = self.stream("Driver/Watch", pb.WatchRequest(heartbeat_ms=20))
        kinds = [next(stream) for _ in range(4)]
        self.assertEqual(["heartbeat", "changed", "heartbeat", "heartbeat"], [e.WhichOneof("event") for e in kinds])
        self.assertEqual("cn1", kinds[1].changed.node)
        self.call("Plugin/Shutdown", pb.ShutdownRequest()).result()
        with self.assertRaises(grpc.RpcError) as ended:
            list(stream)
        self.assertEqual(grpc.StatusCode.UNAVAILABLE, ended.exception.code())
        self.assertTrue(self.driver.unwatched.wait(PATIENCE))

    def test_a_tree_that_cannot_be_is_refused(self) -> None:
        for wrong in ("twice", "orphan"):
            request = update()
            request.tree.providers.add(uuid=ROOT if wrong == "twice" else "x", name="y", parent_uuid="nobody")
            self.assertEqual(grpc.StatusCode.INVALID_ARGUMENT, self.failure(self.call("Driver/UpdateProviderTree", request))[0])
        self.assertEqual("", self.out.getvalue())  # no defect of the driver


class Handshake(unittest.TestCase):
    def test_it_does_not_serve_without_a_certificate(self) -> None:
        for environ in ({}, {handshake.CLIENT_CERT: "none"}):
            with self.assertRaises(handshake.Refused):
                handshake.credentials(environ)

    def test_it_refuses_another_protocol_and_long_paths(self) -> None:
        handshake.check_versions({handshake.VERSIONS: "1,2"})
        with self.assertRaises(handshake.Refused):
            handshake.check_versions({handshake.VERSIONS: "2"})
        with self.assertRaises(handshake.Refused):
            handshake.socket_path({handshake.SOCKET_DIR: "/tmp/" + "x" * 100})
        with self.assertRaises(handshake.Refused):
            handshake.socket_path({})

    def test_only_the_agent_has_the_cookie(self) -> None:
        self.assertFalse(handshake.started_by_agent({}))
        self.assertTrue(handshake.started_by_agent(dict([handshake.COOKIE])))


if __name__ == "__main__":
    unittest.main()
