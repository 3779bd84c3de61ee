# SPDX-License-Identifier: Apache-2.0
"""Drivers that make guests, not only report capacity. A guest that the agent made with spawn is an instance."""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from compute_driver.call import Call
    from compute_driver.tree import Tree

MAX_INSTANCES = 100_000
MAX_USER_DATA = 64 << 10  # bytes
MAX_PUBLIC_KEY = 16 << 10


class PowerState(enum.IntEnum):
    """Nova's, with its numbers."""

    NOSTATE = 0  # there is no guest: of an incomplete instance only
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


@dataclass(frozen=True)
class Instance:
    """One that spawn made, as it is now."""

    uuid: str  # that of the consumer in Placement
    name: str = ""  # what its owner called it
    power: PowerState = PowerState.NOSTATE
    hypervisor_name: str = ""  # what it is called there ("instance-0000002a"), for people


@dataclass(frozen=True)
class Flavor:
    """The size of an instance, in Nova's terms. 0 means that there is none."""

    name: str = ""
    vcpus: int = 0
    memory_mb: int = 0
    root_gb: int = 0
    ephemeral_gb: int = 0
    swap_mb: int = 0
    extra_specs: dict[str, str] = field(default_factory=dict)  # hw:cpu_policy and the like


@dataclass(frozen=True)
class InstanceSpec:
    """An instance to be made. What a driver cannot provide of it, it refuses with an InstanceFault."""

    uuid: str
    name: str = ""  # for people: any text, not unique
    project_id: str = ""
    user_id: str = ""
    flavor: Flavor = field(default_factory=Flavor)
    # What Placement granted, by uuid of a provider in the tree and resource class. It decides which processors, cells of memory and
    # devices the instance gets.
    allocations: dict[str, dict[str, int]] = field(default_factory=dict)
    image: str = ""  # names the image to the driver; empty: none, an empty disk
    image_properties: dict[str, str] = field(default_factory=dict)  # hw_machine_type and the like
    metadata: dict[str, str] = field(default_factory=dict)  # the owner's
    user_data: bytes = b""  # for cloud-init
    # The key pair that its owner asked for; empty: none. The key is a line of authorized_keys, or an X.509 certificate in PEM.
    key_name: str = ""
    public_key: str = ""
    config_drive: bool = False  # its owner asks for one, as OpenStack has it


@runtime_checkable
class InstanceManager(Protocol):
    """Makes instances. It knows them again after a restart, and never touches any other guest. Capability: instances.

    Calls about one instance come one after the other; those about different ones run beside each other and beside every other method,
    configure included. None comes before configure has succeeded once.

    The process can end at any point. So spawn, destroy and set_power are idempotent: the agent calls again with the same arguments, and
    the driver continues from what it finds. NotReady promises that nothing was begun; Unsupported says that the configuration does not let
    the driver manage instances. After an exception that is not named below, the agent takes the outcome for unknown and asks again.
    """

    @abstractmethod
    def instances(self, call: Call, node: str) -> list[Instance]:
        """The instances of a node, running or not, complete or not: all, or an exception."""

    @abstractmethod
    def spawn(self, call: Call, node: str, spec: InstanceSpec, tree: Tree) -> Instance:
        """Makes an instance and starts it. One that is there is left as it is; what an interrupted spawn left is completed.

        Raises InstanceFault if asking again would not help; then nothing is left of the attempt.
        """

    @abstractmethod
    def destroy(self, call: Call, node: str, uuid: str) -> None:
        """Ends an instance and removes all that spawn made for it. Succeeds if there is nothing (left) of that uuid.

        Raises InstanceFault if spawn did not make the guest of that uuid.
        """

    @abstractmethod
    def set_power(self, call: Call, node: str, uuid: str, to: PowerState, hard: bool) -> Instance:
        """Brings an instance to RUNNING or SHUTDOWN. With hard it is switched off at once, otherwise the guest is asked first.

        Raises InstanceNotFound; InstanceFault.
        """


@runtime_checkable
class InstanceWatcher(Protocol):
    """Notices what happens to instances by itself: one that crashed, or was stopped with another tool. Capability: instance_events."""

    @abstractmethod
    def watch_instances(self, call: Call, changed: Callable[[str, str], None]) -> None:
        """Calls changed(node, uuid) whenever an instance is no longer as it was, until call.ended().

        An empty uuid stands for all of the node, an empty node for all. May be called before configure has ever succeeded.
        """
