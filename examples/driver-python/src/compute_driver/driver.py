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
    """Describes the host to the driver."""

    name: str  # the host's, as the agent is configured: the usual name of the only node
    state_dir: str = ""  # a directory for the driver's own files, which outlives the process, or empty
    former_nodes: dict[str, str] = field(default_factory=dict)  # names that nodes had before the host was renamed, with the present names


@dataclass(frozen=True)
class Node:
    """A compute node: the root of a provider tree. An empty uuid stands for the agent's own identity."""

    name: str
    uuid: str = ""


class Driver:
    """The methods that every driver has.

    configure comes before the calls about nodes, and of all these one runs at a time. Each gets a Call, with its logger
    and its deadline: work that can take long calls call.check() from time to time. An exception fails that call alone; Failure is for
    expected errors.

    capabilities.py and instances.py have the optional interfaces (Watcher, LayoutVersioner, GuestLister, InstanceManager, ...). A driver
    that has the methods of one announces it to the agent as a capability.
    """

    name = ""  # short and lower case: "libvirt"
    version = ""  # the driver's own

    def config_schema(self) -> dict[str, Any] | None:
        """A JSON Schema of the configuration, or None if the driver takes none."""
        return None

    def configure(self, call: Call, config: dict[str, Any], host: HostInfo) -> None:
        """Applies the configuration. It is strict: an unknown key is a ConfigError. After an error the former configuration stays in effect."""
        raise NotImplementedError

    def available_nodes(self, call: Call) -> list[Node]:
        """The nodes that the driver is responsible for. Raises NotReady while that is not known; an empty list means that there are no nodes."""
        raise NotImplementedError

    def update_provider_tree(self, call: Call, tree: Tree, node: str, allocations: Allocations | None) -> Allocations | None:
        """Edits the tree so that it has the node's inventory, and changes only what is the driver's own.

        Idempotent. Without allocations it raises ReshapeNeeded if inventory in use must move. With them it returns them, edited: every
        consumer has the same amounts as before, at their new places. None stands for the given allocations, as edited.
        """
        raise NotImplementedError
