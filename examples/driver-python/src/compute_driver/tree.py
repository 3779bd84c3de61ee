# SPDX-License-Identifier: Apache-2.0
"""The provider tree and its allocations.

Both keep the message of the request and change it in place, so that unknown fields are kept.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from compute_driver import driver_pb2 as pb
from compute_driver.errors import Failure, Malformed

MAX_UNIT = 2**31 - 1  # the most that Placement stores of anything


def child_uuid(root: str, name: str) -> str:
    """The uuid of a provider below a root: the same for the same root and name, also after a restart."""
    return str(uuid.uuid5(uuid.UUID(root), name))


@dataclass(frozen=True)
class Inventory:
    """How much of one resource class a provider has."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_UNIT
    step_size: int = 1
    allocation_ratio: float = 1.0

    @property
    def capacity(self) -> int:
        """How much can be allocated in total."""
        return int((self.total - self.reserved) * self.allocation_ratio)

    @classmethod
    def received(cls, msg: pb.Inventory) -> Inventory:
        """In a message, 0 stands for Placement's default."""
        return cls(msg.total, msg.reserved, msg.min_unit or 1, msg.max_unit or MAX_UNIT, msg.step_size or 1,
                   msg.allocation_ratio or 1.0)

    def write_to(self, msg: pb.Inventory) -> None:
        msg.total, msg.reserved = self.total, self.reserved
        msg.min_unit, msg.max_unit, msg.step_size = self.min_unit, self.max_unit, self.step_size
        msg.allocation_ratio = self.allocation_ratio


class Provider:
    """A resource provider of a tree. A driver does not change its name, uuid, parent and generation."""

    def __init__(self, msg: pb.ResourceProvider) -> None:
        self.message = msg

    @property
    def uuid(self) -> str:
        return self.message.uuid

    @property
    def name(self) -> str:
        return self.message.name

    @property
    def parent_uuid(self) -> str:
        return self.message.parent_uuid

    @property
    def traits(self) -> set[str]:
        return set(self.message.traits)

    @property
    def inventories(self) -> dict[str, Inventory]:
        """A copy, by resource class."""
        return {name: Inventory.received(msg) for name, msg in self.message.inventories.items()}

    def inventory(self, resource_class: str) -> Inventory | None:
        if resource_class not in self.message.inventories:
            return None
        return Inventory.received(self.message.inventories[resource_class])

    def set_inventory(self, resource_class: str, inventory: Inventory) -> None:
        inventory.write_to(self.message.inventories[resource_class])

    def remove_inventory(self, resource_class: str) -> None:
        self.message.inventories.pop(resource_class, None)

    def add_traits(self, traits: Iterable[str]) -> None:
        self.message.traits.extend(sorted(set(traits) - self.traits))

    def remove_traits(self, traits: Iterable[str]) -> None:
        left = [t for t in self.message.traits if t not in set(traits)]
        del self.message.traits[:]
        self.message.traits.extend(left)


class Tree:
    """Providers, each after its parent. The node's root and all below it, and the sharing providers beside it."""

    def __init__(self, msg: pb.ProviderTree) -> None:
        self._providers = {p.uuid: Provider(p) for p in msg.providers}
        self._by_name = {p.name: p for p in self}
        self._children: dict[str, list[str]] = {}
        for p in self:
            if p.parent_uuid and p.parent_uuid not in self._providers:
                raise Malformed(f"resource provider {p.name!r} is below {p.parent_uuid}, which is not in the tree")
            self._children.setdefault(p.parent_uuid, []).append(p.uuid)
        if len(self._by_name) != len(msg.providers) or len(self._providers) != len(msg.providers):
            raise Malformed("the tree has a name or a uuid more than once")

    def __iter__(self) -> Iterator[Provider]:
        return iter(self._providers.values())

    def provider(self, uuid_: str) -> Provider | None:
        return self._providers.get(uuid_)

    def find(self, name: str) -> Provider | None:
        return self._by_name.get(name)

    def children(self, uuid_: str) -> list[Provider]:
        return [self._providers[c] for c in self._children.get(uuid_, [])]

    def below(self, uuid_: str) -> list[Provider]:
        """All providers below one, each after its parent."""
        out = self.children(uuid_)
        for p in out:  # grows while it is read
            out.extend(self.children(p.uuid))
        return out

    def child(self, root: Provider, name: str) -> Provider:
        """Returns the provider of that name below a root, and creates it if it does not exist."""
        if (existing := self.find(name)) is not None:
            if existing not in self.below(root.uuid):
                raise Failure(f"resource provider {name!r} exists already, and is not below {root.name!r}")
            return existing
        new = Provider(pb.ResourceProvider(uuid=child_uuid(root.uuid, name), name=name, parent_uuid=root.uuid))
        self._providers[new.uuid] = self._by_name[name] = new
        self._children.setdefault(root.uuid, []).append(new.uuid)
        return new

    def remove(self, provider: Provider) -> None:
        """Removes a provider that has nothing below it."""
        if self._children.get(provider.uuid):
            raise Failure(f"resource provider {provider.name!r} has children")
        del self._providers[provider.uuid], self._by_name[provider.name]
        self._children[provider.parent_uuid].remove(provider.uuid)

    def message(self) -> pb.ProviderTree:
        """The tree for the reply."""
        return pb.ProviderTree(providers=[p.message for p in self])


class Allocations:
    """The allocations of all consumers: resources[consumer][provider][class] is at least 1."""

    def __init__(self, msg: pb.Allocations) -> None:
        self._msg = msg
        self.resources: dict[str, dict[str, dict[str, int]]] = {
            consumer: {provider: dict(held.amounts) for provider, held in c.resources.items()}
            for consumer, c in msg.consumers.items()
        }

    def copy(self) -> Allocations:
        return Allocations(self.message())

    def held(self, consumer: str, provider: str, resource_class: str) -> int:
        return self.resources.get(consumer, {}).get(provider, {}).get(resource_class, 0)

    def used(self, provider: str, resource_class: str) -> int:
        """The sum of the allocations of all consumers. Cost: O(consumers)."""
        return sum(self.held(c, provider, resource_class) for c in self.resources)

    def message(self) -> pb.Allocations:
        """The allocations for the reply. Other fields of a consumer stay as they were in the request."""
        out = pb.Allocations()
        for consumer, held in self.resources.items():
            to = out.consumers[consumer]
            to.CopyFrom(self._msg.consumers[consumer])
            to.ClearField("resources")
            for provider, amounts in held.items():
                to.resources[provider].amounts.update(amounts)
        return out
