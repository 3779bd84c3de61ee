# SPDX-License-Identifier: Apache-2.0
"""What a driver can do beyond what all must. Having the methods is enough; deriving from the class lets a type checker look at them."""

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
    """Notices changes by itself: hot-plug, a daemon that came back. Capability: watch."""

    @abstractmethod
    def watch(self, call: Call, changed: Callable[[str], None]) -> None:
        """Calls changed(node) whenever the tree of a node may look different (changed("") for all), until call.ended().

        Runs beside everything else, and may be called before configure has ever succeeded.
        """


@runtime_checkable
class HealthChecker(Protocol):
    """Can tell more about itself than that the process answers. Capability: health."""

    @abstractmethod
    def health(self, call: Call) -> str:
        """Empty if all is well, otherwise in words what keeps the driver from working. Within a second or so; beside anything."""


@dataclass(frozen=True)
class Warned:
    """Something that the operator should know and that does not keep the driver from working."""

    # Identifies the warning, the same as long as it holds: 1 to 80 of a-z, 0-9, "-", "_", "." and ":", starting with a letter or a digit.
    # Characters that it cannot have become hyphens.
    name: str
    text: str  # for people, at most 2,000 characters; it may change while the warning holds


@runtime_checkable
class Warner(Protocol):
    """Warns of two sources that disagree, of a setting that does nothing: it works all the same. Capability: warnings."""

    @abstractmethod
    def warnings(self) -> list[Warned]:
        """All that hold now. Asked with every health check: at any time, beside anything. It must not block."""


@runtime_checkable
class Shutdowner(Protocol):
    """Has something to put in order at the end. Capability: shutdown."""

    @abstractmethod
    def shutdown(self, call: Call) -> None:
        """Called when all other calls have returned. The process ends after it, or when the call's time is over."""


@runtime_checkable
class LayoutVersioner(Protocol):
    """Has trees whose layouts have versions, counted from 1; 0 is a tree whose layout was not recorded. Capability: layouts.

    When the agent starts, it calls reshape for each migration from the recorded version to the current one, and then
    update_provider_tree with the result. A migration knows two neighbouring layouts only, and does not change once it is released.
    """

    def layout_version(self) -> int:
        """The layout version that update_provider_tree makes, 1 to MAX_LAYOUT; 0: with this configuration layouts have no versions.

        Called after each configure that succeeded. It must not block. Drivers for releases up to 0.2.0 have shape_version instead,
        so this is not abstract.
        """
        raise NotImplementedError(f"{type(self).__name__} has no method layout_version")

    @abstractmethod
    def reshape(self, call: Call, tree: Tree, node: str, from_layout: int, allocations: Allocations, /) -> Allocations | None:
        """Migrates a tree to the next layout version and moves the allocations. None stands for those given, as they are now.

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
    """Its reshapes call resource classes by other names. The agent takes a class for lost unless its rename is declared."""

    @abstractmethod
    def class_renames(self) -> dict[str, str]:
        """Present names by former ones, of the reshape that was just made: called right after it. It must not block."""


@runtime_checkable
class CapabilityReporter(Protocol):
    """Tells what guests can do on a node, as the traits that Nova calls compute capabilities. Capability: capabilities."""

    @abstractmethod
    def capabilities(self, node: str) -> dict[str, bool]:
        """Traits, and whether the node has them now: true ones are put on its root, false ones taken off.

        Called right after each update_provider_tree that succeeded. It must not block.
        """


@runtime_checkable
class ProductNamer(Protocol):
    """Knows what the hardware behind providers is called. Capability: product_names."""

    @abstractmethod
    def product_names(self, node: str) -> dict[str, str]:
        """Product names by the name of the provider, for `compute-agent tree`; at most 200 characters each.

        Called right after each update_provider_tree that succeeded. It must not block.
        """


@dataclass(frozen=True)
class Hypervisor:
    """What makes the guests of a node, as Nova's hypervisor_type and hypervisor_version have it."""

    type: str = ""  # what it is called: "QEMU"; at most 100 characters
    version: int = 0  # as one number: 7.2.1 is 7002001; 0: not known


@runtime_checkable
class HypervisorReporter(Protocol):
    """Knows which hypervisor makes the guests of its nodes. Capability: hypervisor."""

    @abstractmethod
    def hypervisor(self, node: str) -> Hypervisor | None:
        """The hypervisor of a node, for `openstack hypervisor list`. None: not known now.

        Called right after each update_provider_tree that succeeded. It must not block.
        """


@dataclass(frozen=True)
class Guest:
    """One guest of a node, as the hypervisor knows it."""

    uuid: str  # that of the consumer in Placement
    name: str = ""  # for people; it and the owner may be empty
    project_id: str = ""
    user_id: str = ""
    # All that it has, by uuid of a provider in the tree and resource class, at least 1 each. None: not known, which is not nothing.
    resources: dict[str, dict[str, int]] | None = None


@runtime_checkable
class GuestLister(Protocol):
    """Knows which guests there are. Capability: guests."""

    @abstractmethod
    def guests(self, call: Call, tree: Tree, node: str) -> list[Guest]:
        """All guests of a node, running or not, whichever tool made them. All, or an exception: allocations of those that are missing may go.

        An empty list says that there are no guests. Raises NotReady, or Unsupported if they cannot be known with this configuration.
        """


@runtime_checkable
class NodeChecker(Protocol):
    """Has nodes that can be gone for good while the agent lives on. Capability: node_deleted."""

    @abstractmethod
    def node_deleted(self, call: Call, node: Node) -> bool:
        """Whether a node that is no longer available is gone for good: then its providers are deleted.

        True needs proof. A node that is down, out of reach or unknown is not deleted.
        """
