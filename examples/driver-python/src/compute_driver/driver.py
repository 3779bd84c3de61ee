# SPDX-License-Identifier: Apache-2.0
"""The interface that a driver implements."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compute_driver.call import Call
    from compute_driver.tree import Allocations, Tree


@dataclass(frozen=True)
class HostInfo:
    """What the agent tells a driver about its surroundings."""

    name: str  # the host's, as the agent is configured: the usual name of the only node
    state_dir: str = ""  # the driver's own directory, which outlives it, or empty
    former_nodes: dict[str, str] = field(default_factory=dict)  # names that nodes had before the host was renamed, with the present ones


@dataclass(frozen=True)
class Node:
    """A compute node: the root of a provider tree. An empty uuid leaves it to the agent's own identity."""

    name: str
    uuid: str = ""


class Driver:
    """What every driver can do.

    configure comes before the calls about nodes, and of all these one runs at a time. Each gets a Call, with its logger
    and its deadline: what may take long asks call.check() now and then. Any exception fails that call alone; Failure is for
    those that are meant.

    What it can do beyond that are the classes of abilities.py and instances.py (Watcher, LayoutVersioner, GuestLister, InstanceManager, ...):
    each is announced to the agent because the methods are there.
    """

    name = ""  # short and lower case: "libvirt"
    version = ""  # the driver's own

    def config_schema(self) -> dict[str, Any] | None:
        """A JSON Schema of the configuration, or None if there is none to give."""
        return None

    def configure(self, call: Call, config: dict[str, Any], host: HostInfo) -> None:
        """Takes the configuration. Strict: an unknown key is a ConfigError. On an error the former one stays in force."""
        raise NotImplementedError

    def available_nodes(self, call: Call) -> list[Node]:
        """The nodes that the driver is responsible for. NotReady while that cannot be known, never an empty list instead."""
        raise NotImplementedError

    def update_provider_tree(self, call: Call, tree: Tree, node: str, allocations: Allocations | None) -> Allocations | None:
        """Edits the tree until it says what the node can give, and leaves alone what is not the driver's own.

        Idempotent. Raises ReshapeNeeded without allocations, if inventory in use must move; with them it returns them
        edited: everybody holds what they held, at its new place. None stands for unchanged.
        """
        raise NotImplementedError
