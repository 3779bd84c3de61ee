# SPDX-License-Identifier: Apache-2.0
"""The protocol, over a connection: what a driver does and raises, as the agent sees it."""

import io
import json
import logging
import threading
import unittest
import warnings
from concurrent import futures

import grpc

from compute_driver import ConfigError, Driver, Node, NotReady, Offender, ReshapeFailed, ReshapeNeeded, handshake, log
from compute_driver import driver_pb2 as pb
from compute_driver import envelope_pb2 as envelope
from compute_driver.service import Service

ROOT = "11111111-2222-3333-4444-555555555555"
PATIENCE = 30  # seconds that nothing is expected to take


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
    request = pb.UpdateProviderTreeRequest(node="cn1", tree=pb.ProviderTree(providers=[pb.ResourceProvider(uuid=ROOT, name="cn1")]))
    if reshape:
        request.allocations.SetInParent()
    return request


class Calls(unittest.TestCase):
    def serve(self, driver: Driver) -> None:
        self.driver, self.out = driver, io.StringIO()
        server = grpc.server(futures.ThreadPoolExecutor(8), handlers=Service(driver, log.set_up(self.out, "debug")).handlers())
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait(PATIENCE))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_metadata_size", 16 << 20)])
        self.addCleanup(self.channel.close)

    def setUp(self) -> None:
        self.serve(Scripted())
        self.addCleanup(logging.basicConfig, force=True)

    def call(self, method: str, request, timeout: float = PATIENCE):
        """Returns a call under way; result() is its reply."""
        service = "Plugin" if hasattr(Service, "_" + method.lower()) and method != "Watch" else "Driver"
        reply = getattr(pb, method + "Response")
        path = f"/compute.driver.v1.{service}/{method}"
        return self.channel.unary_unary(path, type(request).SerializeToString, reply.FromString).future(request, timeout=timeout)

    def failure(self, call) -> tuple[grpc.StatusCode, object]:
        """Code and detail of a call that failed."""
        with self.assertRaises(grpc.RpcError) as failed:
            call.result()
        for key, value in failed.exception.trailing_metadata():
            if key == "grpc-status-details-bin":
                status = envelope.Status.FromString(value)
                self.assertEqual(failed.exception.code().value[0], status.code)
                name = status.details[0].type_url.removeprefix("type.googleapis.com/compute.driver.v1.")
                return failed.exception.code(), getattr(pb, name).FromString(status.details[0].value)
        return failed.exception.code(), failed.exception.details()

    def test_answers_are_typed(self) -> None:
        def raising(e):
            def do(*_):
                raise e
            return do

        self.driver.update = raising(ReshapeNeeded("it moves"))
        code, detail = self.failure(self.call("UpdateProviderTree", update()))
        self.assertEqual((grpc.StatusCode.FAILED_PRECONDITION, pb.ReshapeNeeded(reason="it moves")), (code, detail))

        self.driver.update = raising(ReshapeFailed("no", [Offender("c", "p", "VGPU", "too many")] * 501))
        code, detail = self.failure(self.call("UpdateProviderTree", update(reshape=True)))
        offender = pb.Offender(consumer_uuid="c", provider_uuid="p", resource_class="VGPU", problem="too many")
        self.assertEqual(offender, detail.offenders[0])
        self.assertEqual((501, "and 1 more"), (len(detail.offenders), detail.offenders[500].problem))

        self.driver.nodes = raising(NotReady("x" * 100_000))
        code, detail = self.failure(self.call("AvailableNodes", pb.AvailableNodesRequest()))
        self.assertTrue(isinstance(detail, pb.NotReady) and len(detail.reason) < 20_000)

        code, detail = self.failure(self.call("Configure", pb.ConfigureRequest(config_json=b"{}")))
        self.assertEqual((grpc.StatusCode.INVALID_ARGUMENT, pb.ConfigError(key="a.b", problem="is wrong")), (code, detail))
        for wrong in (b"{", b"[]", b"\xff"):
            self.assertEqual("", self.failure(self.call("Configure", pb.ConfigureRequest(config_json=wrong)))[1].key)

    def test_a_defect_fails_its_call_alone(self) -> None:
        self.driver.update = lambda *_: {}["lost"]
        code, words = self.failure(self.call("UpdateProviderTree", update()))
        self.assertEqual(grpc.StatusCode.INTERNAL, code)
        self.assertIn("KeyError in UpdateProviderTree", words)
        line = json.loads(self.out.getvalue())
        self.assertEqual(("error", "UpdateProviderTree"), (line["@level"], line["call"]))
        self.assertIn("Traceback", line["stack"])
        self.assertEqual("cn1", self.call("AvailableNodes", pb.AvailableNodesRequest()).result().nodes[0].name)

    def test_allocations_come_back_if_and_only_if_they_were_given(self) -> None:
        self.assertFalse(self.call("UpdateProviderTree", update()).result().HasField("allocations"))
        self.assertTrue(self.call("UpdateProviderTree", update(reshape=True)).result().HasField("allocations"))
        self.driver.update = lambda call, tree, allocations: allocations or object()
        self.assertEqual(grpc.StatusCode.INTERNAL, self.failure(self.call("UpdateProviderTree", update()))[0])

    def test_one_call_at_a_time_and_a_deadline_for_those_that_wait(self) -> None:
        inside, free = threading.Event(), threading.Event()

        def hang(*_):
            inside.set()
            free.wait(PATIENCE)

        self.driver.update = hang
        slow = self.call("UpdateProviderTree", update())
        inside.wait(PATIENCE)
        late = self.call("AvailableNodes", pb.AvailableNodesRequest(), timeout=0.2)
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(late)[0])
        self.assertEqual("scripted", self.call("Info", pb.InfoRequest()).result().name)  # beside anything
        free.set()
        slow.result()

    def test_a_driver_learns_that_nobody_waits(self) -> None:
        inside, learned = threading.Event(), threading.Event()

        def patient(call, *_):
            inside.set()
            if call.wait(PATIENCE):
                learned.set()
            call.check()

        self.driver.update = patient
        call = self.call("UpdateProviderTree", update())
        inside.wait(PATIENCE)
        call.cancel()
        self.assertTrue(learned.wait(PATIENCE))

    def test_shutdown_drains_tidies_up_and_refuses(self) -> None:
        inside, free = threading.Event(), threading.Event()

        def hang(*_):
            inside.set()
            free.wait(PATIENCE)

        self.driver.update = hang
        slow = self.call("UpdateProviderTree", update())
        inside.wait(PATIENCE)
        self.assertEqual(grpc.StatusCode.DEADLINE_EXCEEDED, self.failure(self.call("Shutdown", pb.ShutdownRequest(grace_ms=50)))[0])
        self.assertFalse(self.driver.tidied)
        end = self.call("Shutdown", pb.ShutdownRequest(grace_ms=PATIENCE * 1000))
        self.assertEqual(grpc.StatusCode.UNAVAILABLE, self.failure(self.call("Info", pb.InfoRequest()))[0])
        free.set()
        slow.result()
        end.result()
        self.assertTrue(self.driver.tidied)

    def test_abilities_that_are_absent_are_not_announced_and_unimplemented(self) -> None:
        self.assertEqual(["shutdown"], list(self.call("Info", pb.InfoRequest()).result().capabilities))
        for method in ("Watch", "Guests", "NodeDeleted"):
            request = getattr(pb, method + "Request")()
            self.assertEqual(grpc.StatusCode.UNIMPLEMENTED, self.failure(self.call(method, request))[0])

    def test_watch(self) -> None:
        self.serve(Watching())
        stream = self.channel.unary_stream("/compute.driver.v1.Driver/Watch", pb.WatchRequest.SerializeToString,
                                           pb.WatchResponse.FromString)(pb.WatchRequest(heartbeat_ms=20), timeout=PATIENCE)
        kinds = [next(stream) for _ in range(4)]
        self.assertEqual(["heartbeat", "changed", "heartbeat", "heartbeat"], [e.WhichOneof("event") for e in kinds])
        self.assertEqual("cn1", kinds[1].changed.node)
        self.call("Shutdown", pb.ShutdownRequest()).result()
        with self.assertRaises(grpc.RpcError) as ended:
            list(stream)
        self.assertEqual(grpc.StatusCode.UNAVAILABLE, ended.exception.code())
        self.assertTrue(self.driver.unwatched.wait(PATIENCE))

    def test_a_tree_that_cannot_be_is_refused(self) -> None:
        for wrong in ("twice", "orphan"):
            request = update()
            request.tree.providers.add(uuid=ROOT if wrong == "twice" else "x", name="y", parent_uuid="nobody")
            self.assertEqual(grpc.StatusCode.UNKNOWN, self.failure(self.call("UpdateProviderTree", request))[0])
        self.assertEqual("", self.out.getvalue())  # no defect of the driver


class Logging(unittest.TestCase):
    def test_lines_are_what_the_agent_reads(self) -> None:
        out = io.StringIO()
        logger = log.set_up(out, "info")
        self.addCleanup(logging.basicConfig, force=True)
        logger.debug("not shown")
        logger.with_fields(call="X").warn("100% odd", at="a\nb", thing=object)
        logging.getLogger("library").error("of %s", "others")
        warnings.warn("old", stacklevel=1)
        lines = [json.loads(text) for text in out.getvalue().splitlines()]
        self.assertEqual([("warn", "100% odd"), ("error", "of others")], [(x["@level"], x["@message"]) for x in lines[:2]])
        self.assertEqual(("X", "a\nb"), (lines[0]["call"], lines[0]["at"]))
        self.assertRegex(lines[0]["@timestamp"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")
        self.assertEqual("warn", lines[2]["@level"])


class Handshake(unittest.TestCase):
    def test_it_serves_nobody_without_a_certificate(self) -> None:
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
