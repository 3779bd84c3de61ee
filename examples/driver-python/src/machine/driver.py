# SPDX-License-Identifier: Apache-2.0
"""The driver."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from typing import Any

from compute_driver import Allocations, Call, Driver, Failure, HostInfo, Inventory, Node, NotReady, Provider, ReshapeNeeded, Tree, DriverWarning
from machine import layouts
from machine.config import SCHEMA, Config, parse
from machine.hardware import Hardware, look
from machine.instances import ManagesInstances
from machine.layouts import FORMER_VGPU, VGPU
from machine.store import InstanceStore

ARCHITECTURES = {"x86_64": "COMPUTE_ARCH_X86_64", "aarch64": "COMPUTE_ARCH_AARCH64", "ppc64le": "COMPUTE_ARCH_PPC64LE",
                 "s390x": "COMPUTE_ARCH_S390X"}


class MachineDriver(ManagesInstances, Driver):
    """Reports the machine. It keeps no state but its configuration."""

    name = "python"
    version = "2.0.0"

    def __init__(self, look: Callable[[str], Hardware] = look) -> None:
        self._look = look
        self._lock = threading.Lock()
        self._config: Config | None = None
        self._host_store: InstanceStore | None = None
        self._former: list[Config] = []  # what they configured and the present one does not is removed from the tree
        self._renamed = False  # by the last reshape
        self._warned: list[DriverWarning] = []  # of the last tree

    def config_schema(self) -> dict[str, Any]:
        return SCHEMA

    def configure(self, call: Call, config: dict[str, Any], host: HostInfo) -> None:
        new = parse({"node": host.name or "localhost", **config})
        with self._lock:
            if self._config is not None and self._config != new:
                self._former.append(self._config)
            self._config = new
            self._host_store = InstanceStore(host.state_dir) if host.state_dir else None
        call.log.debug("configured", node=new.node, gpus=len(new.gpus))

    def available_nodes(self, call: Call) -> list[Node]:
        return [Node(self.current()[0].node)]

    def node_deleted(self, call: Call, node: Node) -> bool:
        """True for configured former nodes. Any other unknown node may be a machine that is down."""
        return node.name in self.current()[0].former_nodes

    def capabilities(self, node: str) -> dict[str, bool]:
        """The architecture, and that no interface can be attached."""
        own = {trait: platform.machine() == machine for machine, trait in ARCHITECTURES.items()}
        return {**own, "COMPUTE_NET_ATTACH_INTERFACE": False}

    def health(self, call: Call) -> str:
        """Reads what a tree needs."""
        if self._config is None:
            return ""
        try:
            self._look(self._config.disk)
        except NotReady as e:
            return str(e)
        return ""

    def warnings(self) -> list[DriverWarning]:
        return self._warned

    def watch(self, call: Call, changed: Callable[[str], None]) -> None:
        """Polls, since the kernel does not notify of an added or removed processor."""
        last = self._observe(call)
        call.log.debug("watching the machine")
        while not call.wait(self._config.look_every if self._config is not None else 1.0):
            now = self._observe(call)
            if now is not None and last is not None and now != last:
                changed("")
            last = now or last

    def _observe(self, call: Call) -> tuple[Config, Hardware] | None:
        """Returns what a tree follows from, or None if it is not known now."""
        config = self._config
        try:
            return (config, self._look(config.disk)) if config is not None else None
        except NotReady as e:
            call.log.debug("cannot read the machine now", reason=str(e))
            return None

    def update_provider_tree(self, call: Call, tree: Tree, node: str, allocations: Allocations | None) -> Allocations | None:
        config, root = self._node(tree, node)
        hardware = self._look(config.disk)
        desired = _desired(root, config)
        sources = layouts.sources(tree, root, desired)
        self._renamed = layouts.renaming(root, desired)
        if allocations is None and (sources or self._renamed):
            names = [p.name for p in sources] or [root.name]
            raise ReshapeNeeded(f"{VGPU} moves from {', '.join(names)} to {len(desired)} providers")
        with self._lock:
            former = list(self._former)
        if allocations is not None:
            allocations = layouts.rename(root, desired, allocations)
            sources = layouts.sources(tree, root, desired)
            allocations = layouts.move(call, tree, root, desired, allocations, self.allocations_of)
        _remove_former(root, config, former)
        _set_machine(root, config, hardware)
        self._warned = _discrepancies(config, hardware)
        layouts.set_inventories(tree, root, desired)
        layouts.prune(tree, root, desired, sources)
        return allocations

    def layout_version(self) -> int:
        """VGPUs on the node are a choice, not an older layout: without a version, it can change in both directions."""
        return 0 if self.current()[0].gpu_layout == "node" else layouts.PRESENT

    def reshape(self, call: Call, tree: Tree, node: str, from_layout: int, allocations: Allocations) -> Allocations:
        config, root = self._node(tree, node)
        desired = _desired(root, config)
        self._renamed = from_layout == 0 and layouts.renaming(root, desired)
        if from_layout == 0:
            return layouts.rename(root, desired, allocations)
        return layouts.move(call, tree, root, desired, allocations, self.allocations_of)

    def class_renames(self) -> dict[str, str]:
        return {FORMER_VGPU: VGPU} if self._renamed else {}

    def current(self) -> tuple[Config, InstanceStore | None]:
        with self._lock:
            if self._config is None:
                raise NotReady("the driver is not configured yet")
            return self._config, self._host_store

    def _node(self, tree: Tree, node: str) -> tuple[Config, Provider]:
        config, _ = self.current()
        root = tree.find(node)
        if node != config.node or root is None:
            raise Failure(f"node {node!r} is not this driver's, or not in the tree")
        return config, root


def _set_machine(root: Provider, config: Config, hardware: Hardware) -> None:
    processors = hardware.processors
    root.set_inventory("VCPU", Inventory(processors, max_unit=processors, allocation_ratio=config.cpu_allocation_ratio))
    reserved = min(config.reserved_memory_mb, hardware.memory_mb)
    root.set_inventory("MEMORY_MB", Inventory(hardware.memory_mb, reserved=reserved, max_unit=hardware.memory_mb))
    if hardware.disk_gb > 0:  # Placement has no inventory with a total of 0
        root.set_inventory("DISK_GB", Inventory(hardware.disk_gb, max_unit=hardware.disk_gb))
    root.add_traits(config.traits)


def _discrepancies(config: Config, hardware: Hardware) -> list[DriverWarning]:
    """Where machine and configuration differ, which does not keep the driver from working."""
    out = []
    if config.reserved_memory_mb > hardware.memory_mb:
        out.append(DriverWarning("reserved-memory", f"reserved_memory_mb is {config.reserved_memory_mb}, and the machine has {hardware.memory_mb}: "
                                             "all of it is reserved, and no guest fits"))
    if hardware.disk_gb <= 0:
        out.append(DriverWarning("disk-size", f"{config.disk} has less than 1 GB, so that no DISK_GB is reported"))
    return out


def _desired(root: Provider, config: Config) -> layouts.Desired:
    if not config.gpus:
        return {}
    if config.gpu_layout == "node":
        return {root.name: sum(config.gpus.values())}
    return {f"{root.name}_{gpu}": n for gpu, n in config.gpus.items()}


def _remove_former(root: Provider, config: Config, former: list[Config]) -> None:
    """Removes what former configurations put on the node. Anything else on the node stays."""
    for old in former:
        root.remove_traits(set(old.traits) - set(config.traits))
        if old.gpus and old.gpu_layout == "node" and not config.gpus:
            root.remove_inventory(VGPU)
