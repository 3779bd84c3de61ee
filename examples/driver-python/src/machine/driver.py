# SPDX-License-Identifier: Apache-2.0
"""The driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from compute_driver import (Allocations, Driver, Failure, HostInfo, Inventory, Node, NotReady, Place, Provider, ReshapeNeeded, Tree,
                            apply, child_uuid, distribute)
from compute_driver.call import Call
from machine.config import SCHEMA, Config, parse
from machine.survey import Survey, look

VGPU = "VGPU"


class MachineDriver(Driver):
    """Reports the machine. It keeps its configuration, and nothing that it could not find out anew."""

    name = "python"
    version = "1.0.0"

    def __init__(self, look: Callable[[str], Survey] = look) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._config: Config | None = None
        self._former: list[Config] = []  # what of them is configured no more must go from the tree

    def config_schema(self) -> dict[str, Any]:
        return SCHEMA

    def configure(self, call: Call, config: dict[str, Any], host: HostInfo) -> None:
        new = parse({"node": host.name or "localhost", **config})
        with self._lock:
            if self._config is not None and self._config != new:
                self._former.append(self._config)
            self._config = new
        call.log.debug("configured", node=new.node, gpus=len(new.gpus))

    def available_nodes(self, call: Call) -> list[Node]:
        return [Node(self._current()[0].node)]

    def health(self, call: Call) -> str:
        """The same look that a tree needs."""
        if self._config is None:
            return ""
        try:
            self._look(self._config.disk)
        except NotReady as e:
            return str(e)
        return ""

    def watch(self, call: Call, changed: Callable[[str], None]) -> None:
        """Looks from time to time, since the kernel tells nobody of a processor that comes or goes."""
        last = self._glance(call)
        call.log.debug("watching the machine")
        while not call.wait(self._config.look_every if self._config is not None else 1.0):
            now = self._glance(call)
            if now is not None and last is not None and now != last:
                changed("")
            last = now or last

    def _glance(self, call: Call) -> tuple[Config, Survey] | None:
        """What a tree follows from, or None if it cannot be known now."""
        config = self._config
        try:
            return (config, self._look(config.disk)) if config is not None else None
        except NotReady as e:
            call.log.debug("cannot look now", reason=str(e))
            return None

    def update_provider_tree(self, call: Call, tree: Tree, node: str, allocations: Allocations | None) -> Allocations | None:
        config, former = self._current()
        root = tree.find(node)
        if node != config.node or root is None:
            raise Failure(f"node {node!r} is not this driver's, or not in the tree")
        survey = self._look(config.disk)
        wanted = _vgpus(root, config)
        leaving = _leaving(tree, root, wanted)
        if leaving and allocations is None:
            raise ReshapeNeeded(f"{VGPU} moves from {', '.join(p.name for p in leaving)} to {len(wanted)} places")
        _withdraw(root, config, former)
        _put_machine(root, config, survey)
        places = _put_vgpus(tree, root, wanted)
        for source in leaving:
            call.check()
            moves = distribute(tree, allocations, Place(source.uuid, VGPU), places)
            allocations = apply(moves, allocations)
            source.remove_inventory(VGPU)
            call.log.info("reshaped", provider=source.name, moves=len(moves))
        _prune(tree, root, wanted, leaving)
        return allocations

    def _current(self) -> tuple[Config, list[Config]]:
        with self._lock:
            if self._config is None:
                raise NotReady("the driver is not configured yet")
            return self._config, list(self._former)


def _put_machine(root: Provider, config: Config, survey: Survey) -> None:
    processors = survey.processors
    root.set_inventory("VCPU", Inventory(processors, max_unit=processors, allocation_ratio=config.cpu_allocation_ratio))
    reserved = min(config.reserved_memory_mb, survey.memory_mb)
    root.set_inventory("MEMORY_MB", Inventory(survey.memory_mb, reserved=reserved, max_unit=survey.memory_mb))
    if survey.disk_gb > 0:  # Placement knows no inventory of nothing
        root.set_inventory("DISK_GB", Inventory(survey.disk_gb, max_unit=survey.disk_gb))
    root.add_traits(config.traits)


def _vgpus(root: Provider, config: Config) -> dict[str, int]:
    """By the name of a provider, how many VGPUs it is to have."""
    if not config.gpus:
        return {}
    if config.gpu_layout == "node":
        return {root.name: sum(config.gpus.values())}
    return {f"{root.name}_{gpu}": n for gpu, n in config.gpus.items()}


def _own(root: Provider, provider: Provider) -> bool:
    """Whether this driver made a provider: its uuid follows from its name then."""
    return provider.uuid == child_uuid(root.uuid, provider.name)


def _leaving(tree: Tree, root: Provider, wanted: dict[str, int]) -> list[Provider]:
    """The providers whose VGPUs move elsewhere. One that only goes, or only comes, moves nothing."""
    ours = [p for p in [root, *tree.below(root.uuid)] if p is root or _own(root, p) or p.name in wanted]
    now = {p.name: p for p in ours if p.inventory(VGPU) is not None}
    if not wanted.keys() - now.keys():
        return []
    return [p for name, p in now.items() if name not in wanted]


def _put_vgpus(tree: Tree, root: Provider, wanted: dict[str, int]) -> list[Place]:
    places = []
    for name, n in wanted.items():
        provider = root if name == root.name else tree.child(root, name)
        provider.set_inventory(VGPU, Inventory(n, max_unit=n))
        places.append(Place(provider.uuid, VGPU))
    return places


def _withdraw(root: Provider, config: Config, former: list[Config]) -> None:
    """Takes away what earlier configurations put on the node. Anything else that is there is somebody else's."""
    for old in former:
        root.remove_traits(set(old.traits) - set(config.traits))
        if old.gpus and old.gpu_layout == "node" and not config.gpus:
            root.remove_inventory(VGPU)


def _prune(tree: Tree, root: Provider, wanted: dict[str, int], leaving: list[Provider]) -> None:
    """Removes our children of GPUs that are gone. What somebody else made, or put something below or onto, stays."""
    for provider in reversed(tree.below(root.uuid)):
        if not _own(root, provider) or provider.name in wanted:
            continue
        inventories = set(provider.inventories)
        if provider in leaving or VGPU in inventories:
            provider.remove_inventory(VGPU)
            if inventories <= {VGPU} and not tree.children(provider.uuid):
                tree.remove(provider)
