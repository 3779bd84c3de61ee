# SPDX-License-Identifier: Apache-2.0
"""A driver served over a connection, for the tests of the protocol."""

import io
import logging
import unittest
from concurrent import futures

import grpc

from compute_driver import Driver, log
from compute_driver import driver_pb2 as pb
from compute_driver import envelope_pb2 as envelope
from compute_driver.service import Service

ROOT = "11111111-2222-3333-4444-555555555555"
PATIENCE = 30  # seconds that nothing is expected to take
QUIET = log.Log(logging.Logger("nowhere", logging.CRITICAL + 1))


class ServingCase(unittest.TestCase):
    """Serves a driver and calls it as the agent does."""

    def serve(self, driver: Driver) -> None:
        self.driver, self.out = driver, io.StringIO()
        server = grpc.server(futures.ThreadPoolExecutor(16), handlers=Service(driver, log.set_up(self.out, "debug")).handlers())
        self.addCleanup(logging.basicConfig, force=True)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(None).wait(PATIENCE))
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.max_metadata_size", 16 << 20)])
        self.addCleanup(self.channel.close)

    def call(self, method: str, request, timeout: float = PATIENCE, metadata=()):
        """Returns a call under way; result() is its reply. The method is Service/Name."""
        described = _method(method)
        reply = getattr(pb, described.output_type.name)
        path = f"/compute.driver.v1.{method}"
        return self.channel.unary_unary(path, type(request).SerializeToString, reply.FromString).future(request, timeout=timeout, metadata=metadata)

    def stream(self, method: str, request):
        """Returns the responses of a method as they come."""
        reply = getattr(pb, _method(method).output_type.name)
        path = f"/compute.driver.v1.{method}"
        return self.channel.unary_stream(path, type(request).SerializeToString, reply.FromString)(request, timeout=PATIENCE)

    def failure(self, call) -> tuple[grpc.StatusCode, object]:
        """Code and detail of a call that failed; its text if it has no detail."""
        with self.assertRaises(grpc.RpcError) as failed:
            call.result()
        for key, value in failed.exception.trailing_metadata():
            if key == "grpc-status-details-bin":
                status = envelope.Status.FromString(value)
                self.assertEqual(failed.exception.code().value[0], status.code)
                name = status.details[0].type_url.removeprefix("type.googleapis.com/compute.driver.v1.")
                return failed.exception.code(), getattr(pb, name).FromString(status.details[0].value)
        return failed.exception.code(), failed.exception.details()


def _method(path: str):
    service, name = path.split("/")
    return pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]


def tree() -> pb.ProviderTree:
    return pb.ProviderTree(providers=[pb.ResourceProvider(uuid=ROOT, name="cn1")])


def raising(error: BaseException):
    """A method that raises."""
    def do(*_args):
        raise error
    return do
