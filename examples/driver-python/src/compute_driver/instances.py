# SPDX-License-Identifier: Apache-2.0
"""The interfaces of drivers that create guests. An instance is a guest that spawn created."""

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

    NOSTATE = 0  # there is no guest: for an incomplete instance only
    RUNNING = 1
    PAUSED = 3
    SHUTDOWN = 4
    CRASHED = 6
    SUSPENDED = 7


@dataclass(frozen=True)
class Instance:
    """An instance, as it is now."""

    uuid: str  # that of the consumer in Placement
    name: str = ""  # the name that its owner gave it
    power: PowerState = PowerState.NOSTATE
    hypervisor_name: str = ""  # its name there ("instance-0000002a"), for display only


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
    """An instance to create. A driver rejects what it cannot provide with an InstanceFault."""

    uuid: str
    name: str = ""  # for display only: any text, not unique
    project_id: str = ""
    user_id: str = ""
    flavor: Flavor = field(default_factory=Flavor)
    # What the instance has in Placement, by uuid of a provider in the tree and resource class. It decides which CPUs, NUMA cells and
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
    """Creates instances. It recognizes them after a restart, and never changes other guests. Capability: instances.

    Calls for one instance come one after the other. Calls for different ones run concurrently, also with every other method,
    configure included. None comes before configure has succeeded once.

    The process can end at any point. So spawn, destroy and set_power are idempotent: the agent calls again with the same arguments, and
    the driver continues from what it finds. NotReady means that nothing was begun; Unsupported means that the driver does not manage
    instances with this configuration. After any other exception that is not named below the outcome is unknown, and the agent calls again.
    """

    @abstractmethod
    def instances(self, call: Call, node: str) -> list[Instance]:
        """Lists all instances of a node, running or not, complete or not, or raises."""

    @abstractmethod
    def spawn(self, call: Call, node: str, spec: InstanceSpec, tree: Tree) -> Instance:
        """Creates an instance and starts it. It does not change one that exists, and completes what an interrupted spawn left.

        Raises InstanceFault if a retry does not help; then nothing is left of the attempt.
        """

    @abstractmethod
    def destroy(self, call: Call, node: str, uuid: str) -> None:
        """Stops an instance and removes all that spawn created for it. Succeeds if there is nothing with that uuid.

        Raises InstanceFault if the guest with that uuid is not an instance.
        """

    @abstractmethod
    def set_power(self, call: Call, node: str, uuid: str, to: PowerState, hard: bool) -> Instance:
        """Brings an instance to RUNNING or SHUTDOWN. With hard it is powered off at once, otherwise the guest is asked to shut down first.

        Raises InstanceNotFound; InstanceFault.
        """


@runtime_checkable
class InstanceWatcher(Protocol):
    """Notices changes of instances: one that crashed, or was stopped with another tool. Capability: instance_events."""

    @abstractmethod
    def watch_instances(self, call: Call, changed: Callable[[str, str], None]) -> None:
        """Calls changed(node, uuid) whenever an instance may have changed, until call.ended().

        An empty uuid stands for all of the node, an empty node for all. It can be called before configure has succeeded.
        """
