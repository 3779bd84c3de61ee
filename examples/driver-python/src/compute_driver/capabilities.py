# SPDX-License-Identifier: Apache-2.0
"""The optional interfaces of a driver. Having the methods is enough; deriving from the class lets a type checker check them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from compute_driver.call import Call
    from compute_driver.driver import Node
    from compute_driver.tree import Allocations, Tree

MAX_LAYOUT = 9999  # the highest layout version
MAX_SHAPE = MAX_LAYOUT  # its name up to 0.2.0
MAX_GUESTS = 100_000
MAX_WARNINGS = 100
MAX_WARNING_NAME = 80  # characters
MAX_WARNING_TEXT = 2000
MAX_PRODUCT_NAME = 200  # characters
MAX_HYPERVISOR_TYPE = 100  # characters
MAX_HYPERVISOR_VERSION = 2**31 - 1


@runtime_checkable
class Watcher(Protocol):
    """Notices changes (hot-plug, a daemon that came back). Capability: watch."""

    @abstractmethod
    def watch(self, call: Call, changed: Callable[[str], None]) -> None:
        """Calls changed(node) whenever the tree of a node may have changed (changed("") for all), until call.ended().

        Runs concurrently with all other calls. It can be called before configure has succeeded.
        """


@runtime_checkable
class HealthChecker(Protocol):
    """Can report problems of its own. Capability: health."""

    @abstractmethod
    def health(self, call: Call) -> str:
        """Returns "", or what keeps the driver from working. It must return within about a second, and runs concurrently with all other calls."""


@dataclass(frozen=True)
class DriverWarning:
    """A warning that a Warner reports."""

    # Identifies the warning, and stays the same as long as it holds: 1 to 80 of a-z, 0-9, "-", "_", "." and ":", starting with a letter or a digit.
    # Other characters become hyphens.
    name: str
    text: str  # for operators, at most 2,000 characters; it can change while the warning holds


@runtime_checkable
class Warner(Protocol):
    """Reports conditions that do not keep the driver from working: sources that disagree, a setting without effect. Capability: warnings."""

    @abstractmethod
    def warnings(self) -> list[DriverWarning]:
        """Returns all current warnings. Called with every health check, concurrently with all other calls. It must not block."""


@runtime_checkable
class Shutdowner(Protocol):
    """Cleans up at the end. Capability: shutdown."""

    @abstractmethod
    def shutdown(self, call: Call) -> None:
        """Called when all other calls have returned. The process ends after it, or at the deadline of the call."""


@runtime_checkable
class LayoutVersioner(Protocol):
    """Has trees whose layouts have versions, counted from 1; 0 is a tree whose layout was not recorded. Capability: layouts.

    When the agent starts, it calls reshape for each migration from the recorded version to the current one, and then
    update_provider_tree with the result. A migration knows two layouts only, and is not changed after its release.
    """

    def layout_version(self) -> int:
        """The layout version that update_provider_tree makes, 1 to MAX_LAYOUT; 0: layouts have no versions with this configuration.

        Called after each successful configure. It must not block. Drivers for releases up to 0.2.0 have shape_version instead,
        so this is not abstract.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method layout_version")

    @abstractmethod
    def reshape(self, call: Call, tree: Tree, node: str, from_layout: int, allocations: Allocations, /) -> Allocations | None:
        """Migrates a tree to the next layout version and moves the allocations. None stands for the given ones, as edited.

        Idempotent: on a tree that has the next layout or a later one, or nothing of the node yet, it changes nothing. So it looks in the
        tree for what it moves, not at the version. Raises ReshapeFailed or NotReady.
        """


@runtime_checkable
class ShapeVersioner(Protocol):
    """LayoutVersioner as it was up to 0.2.0. Deprecated: name the method layout_version."""

    @abstractmethod
    def shape_version(self) -> int:
        """What layout_version is now."""

    @abstractmethod
    def reshape(self, call: Call, tree: Tree, node: str, from_shape: int, allocations: Allocations, /) -> Allocations | None:
        """As that of LayoutVersioner."""


@runtime_checkable
class Renamer(Protocol):
    """Its reshapes rename resource classes. Without the declaration the agent rejects such a reshape, because a class is missing."""

    @abstractmethod
    def class_renames(self) -> dict[str, str]:
        """Returns present names by former ones, of the last reshape: called right after it. It must not block."""


@runtime_checkable
class CapabilityReporter(Protocol):
    """Reports what guests can do on a node: the traits that Nova calls compute capabilities. Capability: capabilities."""

    @abstractmethod
    def capabilities(self, node: str) -> dict[str, bool]:
        """Returns traits, and whether the node has them now: the agent adds true ones to its root, and removes false ones.

        Called right after each successful update_provider_tree. It must not block.
        """


@runtime_checkable
class ProductNamer(Protocol):
    """Reports product names of the hardware behind providers. Capability: product_names."""

    @abstractmethod
    def product_names(self, node: str) -> dict[str, str]:
        """Returns product names by the name of the provider, for `compute-agent tree`; at most 200 characters each.

        Called right after each successful update_provider_tree. It must not block.
        """


@dataclass(frozen=True)
class Hypervisor:
    """What runs the guests of a node, as Nova's hypervisor_type and hypervisor_version have it."""

    type: str = ""  # what it is called: "QEMU"; at most 100 characters
    version: int = 0  # as one number: 7.2.1 is 7002001; 0: not known


@runtime_checkable
class HypervisorReporter(Protocol):
    """Reports which hypervisor runs the guests of its nodes. Capability: hypervisor."""

    @abstractmethod
    def hypervisor(self, node: str) -> Hypervisor | None:
        """Returns the hypervisor of a node, for `openstack hypervisor list`. None: not known now.

        Called right after each successful update_provider_tree. It must not block.
        """


@dataclass(frozen=True)
class Guest:
    """One guest of a node, as the hypervisor knows it."""

    uuid: str  # that of the consumer in Placement
    name: str = ""  # for display only; it and the owner can be empty
    project_id: str = ""
    user_id: str = ""
    # All resources of the guest, by uuid of a provider in the tree and resource class, at least 1 each. None: not known, which is not none.
    resources: dict[str, dict[str, int]] | None = None
    resources_unknown: str = ""  # for operators: why resources is None, and what to do about it
    # resources is what was requested for the guest when it was created, by its flavor. Missing allocations are created from it; existing
    # ones are not compared with it.
    from_flavor: bool = False


@runtime_checkable
class GuestLister(Protocol):
    """Lists guests. Capability: guests."""

    @abstractmethod
    def guests(self, call: Call, tree: Tree, node: str) -> list[Guest]:
        """Lists all guests of a node, running or not, whichever tool created them, or raises: allocations of a missing guest can be deleted.

        An empty list means that there is no guest. Raises NotReady, or Unsupported if they cannot be known with this configuration.
        """


@runtime_checkable
class NodeChecker(Protocol):
    """Has nodes that can be removed for good while the agent runs. Capability: node_deleted."""

    @abstractmethod
    def node_deleted(self, call: Call, node: Node) -> bool:
        """Reports whether a node that is no longer available was removed for good: True lets the agent delete its providers.

        True needs proof. A node that is down, unreachable or unknown is not deleted.
        """
