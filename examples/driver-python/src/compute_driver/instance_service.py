# SPDX-License-Identifier: Apache-2.0
"""An InstanceManager behind the protocol: the service compute.driver.v1.Instances."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from compute_driver import driver_pb2 as pb
from compute_driver.errors import InstanceFault, InstanceNotFound, Malformed, NotReady
from compute_driver.call import Call
from compute_driver.calls import Calls
from compute_driver.concurrency import CallLocks
from compute_driver.instances import (MAX_INSTANCES, MAX_PUBLIC_KEY, MAX_USER_DATA, Flavor, Instance, InstanceManager, InstanceSpec, InstanceWatcher,
                                      PowerState)
from compute_driver.names import canonical_uuid, check_node
from compute_driver.status import cut
from compute_driver.tree import MAX_UNIT, Tree


class InstanceService:
    """The server's side of every method about instances. Calls for one instance run one at a time; calls for different ones run concurrently."""

    def __init__(self, manager: InstanceManager, calls: Calls, configured: Callable[[], bool]) -> None:
        self._manager = manager
        self._calls = calls
        self._configured = configured
        self._locks = CallLocks("an earlier call for this instance has not returned")

    def methods(self) -> dict[str, Callable]:
        """The methods by their names in the protocol."""

        def unary(name: str, behave: Callable[[Any, Call], Any], uuid: Callable[[Any], str] | None = None) -> Callable:
            def configured(request: Any, call: Call) -> Any:
                if not self._configured():
                    raise NotReady("the driver is not configured yet")
                check_node(request.node)
                return behave(request, call)

            serialize = (lambda request, call: self._locked(canonical_uuid(uuid(request)), call)) if uuid is not None else None
            return self._calls.unary("Instances." + name, configured, serialize=serialize)

        watch = self._watch if isinstance(self._manager, InstanceWatcher) else None
        return {
            "List": unary("List", self._list),
            "Spawn": unary("Spawn", self._spawn, lambda r: r.spec.uuid),
            "Destroy": unary("Destroy", self._destroy, lambda r: r.uuid),
            "SetPower": unary("SetPower", self._set_power, lambda r: r.uuid),
            "Watch": self._calls.stream("Instances.Watch", watch, ("", ""), _watched),
        }

    @contextlib.contextmanager
    def _locked(self, uuid: str, call: Call) -> Iterator[None]:
        """One call at a time for an instance. The driver's errors get the uuid of that instance."""
        with self._locks.held(uuid, call):
            try:
                yield
            except InstanceFault as e:
                raise (e if e.uuid == uuid else InstanceFault(uuid, e.reason))
            except InstanceNotFound as e:
                raise (e if e.uuid == uuid else InstanceNotFound(uuid))

    def _list(self, request: pb.ListInstancesRequest, call: Call) -> pb.ListInstancesResponse:
        listed = self._manager.instances(call, request.node)
        if len(listed) > MAX_INSTANCES:
            raise RuntimeError(f"the driver lists {len(listed)} instances, at most {MAX_INSTANCES} are allowed")
        if len({i.uuid for i in listed}) != len(listed):
            raise RuntimeError("the driver lists an instance twice")
        return pb.ListInstancesResponse(instances=[_message(i) for i in listed])

    def _spawn(self, request: pb.SpawnInstanceRequest, call: Call) -> pb.SpawnInstanceResponse:
        tree = Tree(request.tree)
        spec = _spec(request.spec, tree)
        created = self._manager.spawn(call, request.node, spec, tree)
        return pb.SpawnInstanceResponse(instance=_checked(created, spec.uuid))

    def _destroy(self, request: pb.DestroyInstanceRequest, call: Call) -> pb.DestroyInstanceResponse:
        self._manager.destroy(call, request.node, canonical_uuid(request.uuid))
        return pb.DestroyInstanceResponse()

    def _set_power(self, request: pb.SetInstancePowerRequest, call: Call) -> pb.SetInstancePowerResponse:
        uuid = canonical_uuid(request.uuid)
        if request.power_state not in (PowerState.RUNNING, PowerState.SHUTDOWN):
            raise Malformed(f"the power state to bring an instance to is RUNNING or SHUTDOWN, not {request.power_state}")
        to = PowerState(request.power_state)
        return pb.SetInstancePowerResponse(instance=_checked(self._manager.set_power(call, request.node, uuid, to, request.hard), uuid))

    def _watch(self, call: Call, put: Callable[[Any], None]) -> None:
        assert isinstance(self._manager, InstanceWatcher)
        self._manager.watch_instances(call, lambda node, uuid: put((cut(node), cut(uuid))))


def _spec(msg: pb.InstanceSpec, tree: Tree) -> InstanceSpec:
    """The instance to create. Raises Malformed if it is invalid."""
    uuid = canonical_uuid(msg.uuid)
    if len(msg.user_data) > MAX_USER_DATA:
        raise Malformed(f"user data of instance {uuid} has {len(msg.user_data)} bytes, at most {MAX_USER_DATA} are allowed")
    if len(msg.public_key.encode()) > MAX_PUBLIC_KEY:
        raise Malformed(f"the public key of instance {uuid} has more than {MAX_PUBLIC_KEY} bytes")
    f = msg.flavor
    sizes = {"vcpus": f.vcpus, "memory_mb": f.memory_mb, "root_gb": f.root_gb, "ephemeral_gb": f.ephemeral_gb, "swap_mb": f.swap_mb}
    for name, size in sizes.items():
        if not 0 <= size <= MAX_UNIT:
            raise Malformed(f"{name} of the flavor of instance {uuid} is {size}: must be 0 to {MAX_UNIT}")
    return InstanceSpec(
        uuid=uuid, name=msg.name, project_id=msg.project_id, user_id=msg.user_id,
        flavor=Flavor(name=f.name, extra_specs=dict(f.extra_specs), **sizes),
        allocations=_allocations(msg, tree),
        image=msg.image, image_properties=dict(msg.image_properties), metadata=dict(msg.metadata), user_data=msg.user_data,
        key_name=msg.key_name, public_key=msg.public_key, config_drive=msg.config_drive,
    )


def _allocations(msg: pb.InstanceSpec, tree: Tree) -> dict[str, dict[str, int]]:
    out = {}
    for uuid, held in msg.allocations.items():
        provider = canonical_uuid(uuid)
        if tree.provider(provider) is None:
            raise Malformed(f"instance {msg.uuid} has allocations of provider {provider}, which is not in the tree")
        for name, amount in held.amounts.items():
            if not 1 <= amount <= MAX_UNIT:
                raise Malformed(f"instance {msg.uuid} has {amount} of {name[:80]}: must be 1 to {MAX_UNIT}")
        out[provider] = dict(held.amounts)
    return out


def _checked(instance: Instance, uuid: str) -> pb.Instance:
    """The message of an instance that a driver returned, which must have the uuid of the request."""
    if instance.uuid != uuid:
        raise RuntimeError(f"the driver was called for instance {uuid}, and returned instance {instance.uuid}")
    return _message(instance)


def _message(i: Instance) -> pb.Instance:
    return pb.Instance(uuid=cut(i.uuid), name=cut(i.name), power_state=int(PowerState(i.power)),
                       hypervisor_name=cut(i.hypervisor_name))


def _watched(event: tuple[str, str] | None) -> pb.WatchInstancesResponse:
    if event is None:
        return pb.WatchInstancesResponse(heartbeat=pb.Heartbeat())
    return pb.WatchInstancesResponse(instance=pb.InstanceEvent(node=event[0], uuid=event[1]))
