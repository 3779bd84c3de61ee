# SPDX-License-Identifier: Apache-2.0
"""Instances of the machine: files instead of guests, which store.py writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compute_driver import (Call, Failure, Guest, Instance, InstanceFault, InstanceManager, InstanceNotFound, InstanceSpec,
                            InstanceWatcher, NotReady, PowerState, Tree, Unsupported)
from machine.config import Config
from machine.store import StoredInstance, InstanceStore


class ManagesInstances(InstanceManager, InstanceWatcher):
    """The methods of the driver for instances. It keeps no state in memory."""

    def current(self) -> tuple[Config, InstanceStore | None]:
        """Returns the configuration, and the store of instances if there is one. Raises NotReady before it is configured."""
        raise NotImplementedError

    def instances(self, call: Call, node: str) -> list[Instance]:
        return [record.instance() for record in _read(self._store(node)[1].all)]

    def spawn(self, call: Call, node: str, spec: InstanceSpec, tree: Tree) -> Instance:
        config, store = self._store(node)
        if (there := _read(lambda: store.find(spec.uuid))) is not None:
            return there.instance()
        if dedicated := [key for key in spec.flavor.extra_specs if key.startswith("hw:")]:
            raise InstanceFault(spec.uuid, f"{', '.join(sorted(dedicated))}: this driver has no hardware for it")
        created = store.create(call, spec, _image(config, spec))
        call.log.info("created an instance", instance=spec.uuid)
        return created.instance()

    def destroy(self, call: Call, node: str, uuid: str) -> None:
        _, store = self._store(node)
        if store.exists(uuid):
            store.remove(uuid)
            call.log.info("removed an instance", instance=uuid)

    def set_power(self, call: Call, node: str, uuid: str, to: PowerState, hard: bool) -> Instance:
        """A file needs no time to shut down, so hard has no effect."""
        _, store = self._store(node)
        if (record := _read(lambda: store.find(uuid))) is not None:
            return store.power(record, to).instance()
        if store.exists(uuid):
            raise InstanceFault(uuid, "it is incomplete: spawn or destroy it")
        raise InstanceNotFound(uuid)

    def watch_instances(self, call: Call, changed: Callable[[str, str], None]) -> None:
        """Polls: a write to a file sends no event. Changes before the first poll are not reported."""
        last: tuple[str, dict[str, StoredInstance]] | None = None
        wait = 0.0
        while not call.wait(wait):
            wait = 1.0
            try:
                config, store = self.current()
                now = (config.node, {k.uuid: k for k in store.all()} if store is not None else {})
            except (NotReady, OSError, ValueError) as e:
                call.log.debug("cannot read the instances now", reason=str(e))
                continue
            wait = config.look_every
            if last is None or last[0] != now[0]:
                changed("", "")
            else:
                for uuid in last[1].keys() | now[1].keys():
                    if last[1].get(uuid) != now[1].get(uuid):
                        changed(now[0], uuid)
            last = now

    def guests(self, call: Call, tree: Tree, node: str) -> list[Guest]:
        """The instances are the only guests. Their resources are what was allocated to them, until a reshape moves it."""
        return [Guest(k.uuid, k.name, k.project_id, k.user_id, _resources(k, tree)) for k in _read(self._store(node)[1].all)]

    def allocations_of(self, uuid: str) -> dict[str, dict[str, int]]:
        """Returns the allocations that an instance was created with; {} for any other uuid."""
        _, store = self.current()
        record = _read(lambda: store.find(uuid)) if store is not None else None
        return record.allocations if record is not None else {}

    def _store(self, node: str) -> tuple[Config, InstanceStore]:
        config, store = self.current()
        if node != config.node:
            raise Failure(f"node {node!r} is not this driver's")
        if store is None:
            raise Unsupported("this driver has no state directory for instances")
        return config, store


def _read(look: Callable):
    """Reads all, or raises NotReady."""
    try:
        return look()
    except (OSError, ValueError) as e:
        raise NotReady(f"reading the instances: {e}") from e


def _image(config: Config, spec: InstanceSpec) -> Path | None:
    if not spec.image:
        return None
    if not config.images or spec.image != Path(spec.image).name or spec.image.startswith("."):
        raise InstanceFault(spec.uuid, f"there is no image {spec.image[:100]!r}")
    path = Path(config.images) / spec.image
    if not path.is_file():
        raise InstanceFault(spec.uuid, f"there is no image {spec.image[:100]!r}")
    return path


def _resources(record: StoredInstance, tree: Tree) -> dict[str, dict[str, int]] | None:
    """Returns the resources of an instance, or None if a reshape has moved them."""
    if record.power == PowerState.NOSTATE.name:
        return None
    for provider, amounts in record.allocations.items():
        there = tree.provider(provider)
        if there is None or any(there.inventory(name) is None for name in amounts):
            return None
    return record.allocations
