# SPDX-License-Identifier: Apache-2.0
"""A Driver behind the protocol: the services compute.driver.v1.Plugin and compute.driver.v1.Driver."""

from __future__ import annotations

import json
import queue
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from compute_driver import driver_pb2 as pb
from compute_driver import status
from compute_driver.answers import Answer, ConfigError, Failure, ReshapeNeeded
from compute_driver.call import Call, Ended
from compute_driver.driver import Driver, HostInfo
from compute_driver.gate import Gate, Turn
from compute_driver.log import Log
from compute_driver.tree import Allocations, Tree

SDK = "python compute_driver 1"
OPTIONAL = ("health", "shutdown", "watch")  # capabilities, each the name of the method that it announces
STREAMS = ("Watch",)  # methods that answer with a stream
HEARTBEAT = 10.0  # seconds, if the agent does not say

_Context = grpc.ServicerContext
_Failed = tuple[grpc.StatusCode, str, bytes]


def capabilities(driver: Driver) -> list[str]:
    """The optional abilities that a driver has."""
    return [name for name in OPTIONAL if hasattr(driver, name)]


class Service:
    """The server's side of every method."""

    def __init__(self, driver: Driver, log: Log) -> None:
        self._driver = driver
        self._log = log
        self._gate = Gate()
        self._turn = Turn()

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Both services. Methods that are not here answer UNIMPLEMENTED, which says that the ability is absent."""
        return [
            _service("Plugin", {
                "Info": self._unary("Info", self._info),
                "ConfigSchema": self._unary("ConfigSchema", self._config_schema),
                "Configure": self._unary("Configure", self._configure, turn=True),
                "Health": self._unary("Health", self._health),
                "Shutdown": self._unary("Shutdown", self._shutdown, gate=False),
            }),
            _service("Driver", {
                "AvailableNodes": self._unary("AvailableNodes", self._available_nodes, turn=True),
                "UpdateProviderTree": self._unary("UpdateProviderTree", self._update_provider_tree, turn=True),
                "Watch": self._watch,
            }),
        ]

    # Methods of Plugin.

    def _info(self, _request: pb.InfoRequest, _call: Call) -> pb.InfoResponse:
        d = self._driver
        return pb.InfoResponse(name=d.name, version=d.version, capabilities=capabilities(d), sdk=SDK)

    def _config_schema(self, _request: pb.ConfigSchemaRequest, _call: Call) -> pb.ConfigSchemaResponse:
        schema = self._driver.config_schema()
        return pb.ConfigSchemaResponse(json_schema=json.dumps(schema).encode() if schema is not None else b"")

    def _configure(self, request: pb.ConfigureRequest, call: Call) -> pb.ConfigureResponse:
        try:
            config = json.loads(request.config_json or b"{}")
        except ValueError as e:
            raise ConfigError("", f"is not valid JSON: {e}") from e
        if not isinstance(config, dict):
            raise ConfigError("", "is not a JSON object")
        self._driver.configure(call, config, HostInfo(request.host.name, request.host.state_dir))
        return pb.ConfigureResponse()

    def _health(self, _request: pb.HealthRequest, call: Call) -> pb.HealthResponse:
        health = getattr(self._driver, "health", None)
        return pb.HealthResponse(problem=health(call) if health is not None else "")

    def _shutdown(self, request: pb.ShutdownRequest, call: Call) -> pb.ShutdownResponse:
        limits = [s for s in (call.remaining(), request.grace_ms / 1000 or None) if s is not None]
        if not self._gate.close(min(limits, default=None)):
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, "calls under way have not returned")
        shutdown = getattr(self._driver, "shutdown", None)
        if shutdown is not None:
            shutdown(call)
        return pb.ShutdownResponse()

    # Methods of Driver.

    def _available_nodes(self, _request: pb.AvailableNodesRequest, call: Call) -> pb.AvailableNodesResponse:
        nodes = self._driver.available_nodes(call)
        return pb.AvailableNodesResponse(nodes=[pb.Node(name=n.name, uuid=n.uuid) for n in nodes])

    def _update_provider_tree(self, request: pb.UpdateProviderTreeRequest, call: Call) -> pb.UpdateProviderTreeResponse:
        reshaping = request.HasField("allocations")
        tree = Tree(request.tree)
        given = Allocations(request.allocations) if reshaping else None
        try:
            edited = self._driver.update_provider_tree(call, tree, request.node, given)
        except ReshapeNeeded as e:
            if reshaping:
                raise RuntimeError(f"the driver needs a reshape though it was given all allocations for one: {e}") from e
            raise
        reply = pb.UpdateProviderTreeResponse(tree=tree.message())
        if given is not None:
            reply.allocations.CopyFrom((edited or given).message())
        elif edited is not None:
            raise RuntimeError("the driver returned allocations though it was given none: it must raise ReshapeNeeded instead")
        return reply

    def _watch(self, request: pb.WatchRequest, context: _Context) -> Iterator[pb.WatchResponse]:
        """Passes on what the driver notices, and a heartbeat when it notices nothing."""
        watch = getattr(self._driver, "watch", None)
        if watch is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "this driver does not watch")
        interval = request.heartbeat_ms / 1000
        if not 0 < interval <= 60:
            interval = HEARTBEAT
        call = Call("Watch", context, self._log)
        events: queue.SimpleQueue[str | _Failed] = queue.SimpleQueue()

        def run() -> None:
            failure = self._guarded(call, lambda: watch(call, events.put))[1]
            events.put(failure or (grpc.StatusCode.UNKNOWN, "the driver stopped watching", b""))

        def closing() -> None:
            events.put((grpc.StatusCode.UNAVAILABLE, "the plugin is shutting down", b""))

        context.add_callback(lambda: events.put((grpc.StatusCode.CANCELLED, "", b"")))
        threading.Thread(target=run, name="watch", daemon=True).start()
        try:
            self._gate.on_close(closing)
            yield _heartbeat()  # at once: the agent knows that it is being heard
            while True:
                try:
                    event = events.get(timeout=interval)
                except queue.Empty:
                    yield _heartbeat()
                    continue
                if not isinstance(event, str):
                    break
                yield pb.WatchResponse(changed=pb.Changed(node=event))
        finally:
            self._gate.forget(closing)
            call.end()
        _abort(context, event)

    # What surrounds every call.

    def _unary(self, name: str, behave: Callable[[Any, Call], Any], turn: bool = False, gate: bool = True) -> Callable:
        def handle(request: Any, context: _Context) -> Any:
            if gate and not self._gate.enter():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the plugin is shutting down")
            call = Call(name, context, self._log)

            def run() -> Any:
                if not turn:
                    return behave(request, call)
                with self._turn.of(call):
                    return behave(request, call)

            try:
                reply, failure = self._guarded(call, run)
            finally:
                if gate:
                    self._gate.leave()
            if failure is not None:
                _abort(context, failure)
            return reply

        return handle

    def _guarded(self, call: Call, run: Callable[[], Any]) -> tuple[Any, _Failed | None]:
        """Runs the driver's code. Whatever it raises fails this call alone."""
        try:
            return run(), None
        except Answer as e:
            return None, status.of(e)
        except Failure as e:
            return None, (grpc.StatusCode.UNKNOWN, status.cut(str(e)), b"")
        except Ended as e:
            return None, (e.code, status.cut(str(e)), b"")
        except Exception as e:  # a defect of the driver
            call.log.error("the driver raised an exception; this call fails and the plugin goes on. It is a defect of the driver: "
                           "report it with this stack", error_type=type(e).__name__, stack=traceback.format_exc())
            words = f"the driver raised {type(e).__name__} in {call.name}: {e} (its stack is in the log)"
            return None, (grpc.StatusCode.INTERNAL, status.cut(words), b"")


def _abort(context: _Context, failure: _Failed) -> None:
    code, words, details = failure
    if details:
        context.set_trailing_metadata(((status.DETAILS, details),))
    context.abort(code, words)


def _heartbeat() -> pb.WatchResponse:
    return pb.WatchResponse(heartbeat=pb.Heartbeat())


def _service(name: str, methods: dict[str, Callable]) -> grpc.GenericRpcHandler:
    service = pb.DESCRIPTOR.services_by_name[name]
    handlers = {}
    for method in service.methods:
        if method.name in methods:
            make = grpc.unary_stream_rpc_method_handler if method.name in STREAMS else grpc.unary_unary_rpc_method_handler
            request, response = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)
            handlers[method.name] = make(methods[method.name], request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)
