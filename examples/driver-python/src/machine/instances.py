# SPDX-License-Identifier: Apache-2.0
"""Instances of the machine: files that say what a guest would be. What makes and keeps them is in stable.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from compute_driver import (Call, Failure, Guest, Instance, InstanceFault, InstanceManager, InstanceNotFound, InstanceSpec,
                            InstanceWatcher, NotReady, PowerState, Tree, Unsupported)
from machine.config import Config
from machine.stable import Kept, Stable


class ManagesInstances(InstanceManager, InstanceWatcher):
    """The part of the driver that is about instances. It has no memory: all that it knows, it reads."""

    def current(self) -> tuple[Config, Stable | None]:
        """The configuration, and where instances are kept if anywhere. Raises NotReady before there is one."""
        raise NotImplementedError

    def instances(self, call: Call, node: str) -> list[Instance]:
        return [kept.instance() for kept in _read(self._stable(node)[1].all)]

    def spawn(self, call: Call, node: str, spec: InstanceSpec, tree: Tree) -> Instance:
        config, stable = self._stable(node)
        if (there := _read(lambda: stable.find(spec.uuid))) is not None:
            return there.instance()
        if dedicated := [key for key in spec.flavor.extra_specs if key.startswith("hw:")]:
            raise InstanceFault(spec.uuid, f"{', '.join(sorted(dedicated))}: there is no hardware here to do it with")
        made = stable.make(call, spec, _image(config, spec))
        call.log.info("made an instance", instance=spec.uuid)
        return made.instance()

    def destroy(self, call: Call, node: str, uuid: str) -> None:
        _, stable = self._stable(node)
        if stable.exists(uuid):
            stable.remove(uuid)
            call.log.info("removed an instance", instance=uuid)

    def set_power(self, call: Call, node: str, uuid: str, to: PowerState, hard: bool) -> Instance:
        """Files follow at once, asked or not."""
        _, stable = self._stable(node)
        if (kept := _read(lambda: stable.find(uuid))) is not None:
            return stable.power(kept, to).instance()
        if stable.exists(uuid):
            raise InstanceFault(uuid, "it was never completed: spawn or destroy it")
        raise InstanceNotFound(uuid)

    def watch_instances(self, call: Call, changed: Callable[[str, str], None]) -> None:
        """Looks from time to time: a write to a file sends no event. What changed before the first look is not known."""
        last: tuple[str, dict[str, Kept]] | None = None
        wait = 0.0
        while not call.wait(wait):
            wait = 1.0
            try:
                config, stable = self.current()
                now = (config.node, {k.uuid: k for k in stable.all()} if stable is not None else {})
            except (NotReady, OSError, ValueError) as e:
                call.log.debug("cannot look at the instances now", reason=str(e))
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
        """The instances are all guests that there are. What they were granted they have for as long as a reshape has not moved it."""
        return [Guest(k.uuid, k.name, k.project_id, k.user_id, _resources(k, tree)) for k in _read(self._stable(node)[1].all)]

    def granted(self, uuid: str) -> dict[str, dict[str, int]]:
        """What an instance was granted; nothing for what is no instance."""
        _, stable = self.current()
        kept = _read(lambda: stable.find(uuid)) if stable is not None else None
        return kept.allocations if kept is not None else {}

    def _stable(self, node: str) -> tuple[Config, Stable]:
        config, stable = self.current()
        if node != config.node:
            raise Failure(f"node {node!r} is not this driver's")
        if stable is None:
            raise Unsupported("the agent gives this driver no state directory to keep instances in")
        return config, stable


def _read(look: Callable):
    """What is on disk, of which a part is nothing: NotReady if it cannot be read."""
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


def _resources(kept: Kept, tree: Tree) -> dict[str, dict[str, int]] | None:
    """What an instance has, or None if that is no longer where it was granted."""
    if kept.power == PowerState.NOSTATE.name:
        return None
    for provider, amounts in kept.allocations.items():
        there = tree.provider(provider)
        if there is None or any(there.inventory(name) is None for name in amounts):
            return None
    return kept.allocations
