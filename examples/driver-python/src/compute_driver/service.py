# SPDX-License-Identifier: Apache-2.0
"""A Driver behind the protocol: the services compute.driver.v1.Plugin and compute.driver.v1.Driver."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import grpc

from compute_driver import capabilities, instances
from compute_driver import driver_pb2 as pb
from compute_driver.errors import TypedError, ConfigError, Failure, Malformed, ReshapeNeeded, Unsupported
from compute_driver.call import Call, Ended
from compute_driver.calls import Calls
from compute_driver.driver import Driver, HostInfo, Node
from compute_driver.concurrency import CallLock
from compute_driver.instance_service import InstanceService
from compute_driver.log import Log
from compute_driver.names import check_renames
from compute_driver.status import cut, text_of
from compute_driver.tree import Allocations, Tree
from compute_driver.warnings import sanitize

SDK = "python compute_driver 1"
CAPABILITIES: dict[str, type | tuple[type, ...]] = {
    "capabilities": capabilities.CapabilityReporter,
    "guests": capabilities.GuestLister,
    "health": capabilities.HealthChecker,
    "hypervisor": capabilities.HypervisorReporter,
    "instance_events": instances.InstanceWatcher,
    "instances": instances.InstanceManager,
    "layouts": (capabilities.LayoutVersioner, capabilities.ShapeVersioner),
    "node_deleted": capabilities.NodeChecker,
    "product_names": capabilities.ProductNamer,
    "shutdown": capabilities.Shutdowner,
    "warnings": capabilities.Warner,
    "watch": capabilities.Watcher,
}
FORMER_NAMES = {"layouts": "shapes"}  # announced too: agents up to 0.2.0 know these only
STREAMS = ("Watch",)  # methods with a stream of replies


def capabilities_of(driver: Driver) -> list[str]:
    """The capabilities of a driver: it has all methods of the interface. Events are of instances that it manages."""
    return [name for name, interface in CAPABILITIES.items()
            if isinstance(driver, interface) and (name != "instance_events" or isinstance(driver, instances.InstanceManager))]


def announced(driver: Driver) -> list[str]:
    """Its capabilities, and the former names of those that have one."""
    names = capabilities_of(driver)
    return names + [FORMER_NAMES[name] for name in names if name in FORMER_NAMES]


class Service:
    """The server's side of every method."""

    def __init__(self, driver: Driver, log: Log) -> None:
        self._driver = driver
        self._calls = Calls(log)
        self._node_calls = CallLock()
        self._configured = False

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """All services. Methods that are not here return UNIMPLEMENTED: the driver does not have the capability."""

        def unary(name: str, behave: Callable[[Any, Call], Any], **how: Any) -> tuple[str, Callable]:
            return name, self._calls.unary(name, behave, **how)

        def serialized(name: str, behave: Callable[[Any, Call], Any]) -> tuple[str, Callable]:
            return unary(name, behave, serialize=lambda _request, call: self._node_calls.held(call))

        watch = self._driver.watch if isinstance(self._driver, capabilities.Watcher) else None
        handlers = [
            service("Plugin", dict([
                unary("Info", self._info),
                unary("ConfigSchema", self._config_schema),
                serialized("Configure", self._configure),
                unary("Health", self._health),
                unary("Shutdown", self._shutdown, drained=False),
            ])),
            service("Driver", dict([
                serialized("AvailableNodes", self._available_nodes),
                serialized("UpdateProviderTree", self._update_provider_tree),
                serialized("ReshapeStep", self._reshape_step),
                serialized("Guests", self._guests),
                serialized("NodeDeleted", self._node_deleted),
                ("Watch", self._calls.stream("Watch", watch, "", _watched)),
            ])),
        ]
        if isinstance(self._driver, instances.InstanceManager):
            manager = InstanceService(self._driver, self._calls, lambda: self._configured)
            handlers.append(service("Instances", manager.methods()))
        return handlers

    # Methods of Plugin.

    def _info(self, _request: pb.InfoRequest, _call: Call) -> pb.InfoResponse:
        d = self._driver
        return pb.InfoResponse(name=d.name, version=d.version, capabilities=announced(d), sdk=SDK)

    def _config_schema(self, _request: pb.ConfigSchemaRequest, _call: Call) -> pb.ConfigSchemaResponse:
        schema = self._driver.config_schema()
        return pb.ConfigSchemaResponse(json_schema=json.dumps(schema).encode() if schema is not None else b"")

    def _configure(self, request: pb.ConfigureRequest, call: Call) -> pb.ConfigureResponse:
        try:
            config = json.loads(request.config_json or b"{}", parse_constant=_no_number)
        except (ValueError, RecursionError) as e:
            raise ConfigError("", f"is not valid JSON: {text_of(e)}") from e
        if not isinstance(config, dict):
            raise ConfigError("", "is not a JSON object")
        self._driver.configure(call, config, HostInfo(request.host.name, request.host.state_dir, dict(request.host.former_nodes)))
        layout = self._layout_version()
        self._configured = True
        return pb.ConfigureResponse(shape_version=layout)

    def _health(self, _request: pb.HealthRequest, call: Call) -> pb.HealthResponse:
        warnings = self._driver.warnings() if isinstance(self._driver, capabilities.Warner) else []
        return pb.HealthResponse(problem=cut(self._problem(call)), warnings=sanitize(warnings))

    def _problem(self, call: Call) -> str:
        if not isinstance(self._driver, capabilities.HealthChecker):
            return ""
        try:
            return self._driver.health(call) or ""
        except (TypedError, Failure) as e:
            return text_of(e) or "the driver reports a problem without saying which"

    def _shutdown(self, request: pb.ShutdownRequest, call: Call) -> pb.ShutdownResponse:
        if request.grace_ms > 0:
            call.limit(request.grace_ms / 1000)
        if not self._calls.drain.close(call.remaining()):
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, "earlier calls have not returned")
        if isinstance(self._driver, capabilities.Shutdowner):
            self._driver.shutdown(call)
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
                raise RuntimeError(f"the driver raised ReshapeNeeded although it got all allocations: {e}") from e
            raise
        reply = pb.UpdateProviderTreeResponse(tree=tree.message())
        if isinstance(self._driver, capabilities.CapabilityReporter):
            reply.capability_traits.update(self._driver.capabilities(request.node) or {})
        if isinstance(self._driver, capabilities.ProductNamer):
            for provider, product in (self._driver.product_names(request.node) or {}).items():
                reply.product_names[cut(provider)] = cut(str(product)[:capabilities.MAX_PRODUCT_NAME])
        if isinstance(self._driver, capabilities.HypervisorReporter):
            known = self._driver.hypervisor(request.node)
            if known is not None:
                version = known.version if 0 <= known.version <= capabilities.MAX_HYPERVISOR_VERSION else 0
                reply.hypervisor.CopyFrom(pb.Hypervisor(type=cut(str(known.type)[:capabilities.MAX_HYPERVISOR_TYPE]), version=version))
        if given is not None:
            reply.allocations.CopyFrom((given if edited is None else edited).message())
            reply.class_renames.update(self._renames())
        elif edited is not None:
            raise RuntimeError("the driver returned allocations, and the request had none: it must raise ReshapeNeeded instead")
        return reply

    def _reshape_step(self, request: pb.ReshapeStepRequest, call: Call) -> pb.ReshapeStepResponse:
        if not isinstance(self._driver, CAPABILITIES["layouts"]):
            raise Unsupported("this driver has no layout versions")
        tree, given = Tree(request.tree), Allocations(request.allocations)
        at, present = request.from_shape, self._layout_version()
        if not 0 <= at < present:
            raise Malformed(f"layout version {at}: must be 0 to {present - 1} to migrate from")
        try:
            edited = self._driver.reshape(call, tree, request.node, at, given)
        except ReshapeNeeded as e:
            raise RuntimeError(f"the driver raised ReshapeNeeded from the migration of layout version {at}: it must migrate, "
                               f"or raise ReshapeFailed: {e}") from e
        allocations = (given if edited is None else edited).message()
        return pb.ReshapeStepResponse(tree=tree.message(), allocations=allocations, class_renames=self._renames())

    def _guests(self, request: pb.GuestsRequest, call: Call) -> pb.GuestsResponse:
        if not isinstance(self._driver, capabilities.GuestLister):
            raise Unsupported("this driver does not list guests")
        guests = self._driver.guests(call, Tree(request.tree), request.node)
        if len(guests) > capabilities.MAX_GUESTS:
            raise RuntimeError(f"the driver lists {len(guests)} guests, at most {capabilities.MAX_GUESTS} are allowed")
        reply = pb.GuestsResponse()
        for g in guests:
            to = reply.guests.add(uuid=cut(g.uuid), name=cut(g.name), project_id=cut(g.project_id), user_id=cut(g.user_id),
                                   resources_unknown=cut(g.resources_unknown), requested=g.from_flavor)
            if g.resources is not None:
                to.resources.SetInParent()
                for provider, amounts in g.resources.items():
                    to.resources.resources[provider].amounts.update(amounts)
        return reply

    def _node_deleted(self, request: pb.NodeDeletedRequest, call: Call) -> pb.NodeDeletedResponse:
        if not isinstance(self._driver, capabilities.NodeChecker):
            raise Unsupported("this driver does not report whether a node was removed for good")
        deleted = self._driver.node_deleted(call, Node(request.node.name, request.node.uuid))
        return pb.NodeDeletedResponse(deleted=deleted is True)  # nothing else is proof

    # Used by several of them.

    def _layout_version(self) -> int:
        if isinstance(self._driver, capabilities.ShapeVersioner):  # first: what it calls layout_version is its own
            version = self._driver.shape_version()
        elif isinstance(self._driver, capabilities.LayoutVersioner):
            version = self._driver.layout_version()
        else:
            return 0
        if not 0 <= version <= capabilities.MAX_LAYOUT:
            raise RuntimeError(f"the driver's layout version is {version}: must be 1 to {capabilities.MAX_LAYOUT}, "
                               "or 0 for none")
        return version

    def _renames(self) -> dict[str, str]:
        """The renames that the driver declares for its last reshape."""
        if not isinstance(self._driver, capabilities.Renamer):
            return {}
        return check_renames(self._driver.class_renames() or {})


def service(name: str, methods: dict[str, Callable]) -> grpc.GenericRpcHandler:
    """A service of the protocol, with those of its methods that exist."""
    described = pb.DESCRIPTOR.services_by_name[name]
    handlers = {}
    for method in described.methods:
        if method.name in methods:
            make = grpc.unary_stream_rpc_method_handler if method.name in STREAMS else grpc.unary_unary_rpc_method_handler
            request, response = getattr(pb, method.input_type.name), getattr(pb, method.output_type.name)
            handlers[method.name] = make(methods[method.name], request.FromString, response.SerializeToString)
    return grpc.method_handlers_generic_handler(described.full_name, handlers)


def _watched(node: str | None) -> pb.WatchResponse:
    if node is None:
        return pb.WatchResponse(heartbeat=pb.Heartbeat())
    return pb.WatchResponse(changed=pb.Changed(node=node))


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a JSON number")
