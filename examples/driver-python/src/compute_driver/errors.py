# SPDX-License-Identifier: Apache-2.0
"""Errors that a driver can raise. The agent receives each as an error detail of the protocol."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class Failure(Exception):
    """An expected error without a type in the protocol. Any exception that is not of this module is logged as a defect of the driver."""


class Malformed(Failure):
    """The request of the agent is invalid. The SDK raises it before it calls the driver."""


class TypedError(Exception):
    """Base of the errors that have a type in the protocol."""


class NotReady(TypedError):
    """The state of the machine is not known now: a daemon is starting, a device does not respond yet."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ReshapeNeeded(TypedError):
    """Inventory that guests use must move to another provider: the agent calls again with allocations."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Violation:
    """One violation that prevents a reshape. Any of its fields can be empty."""

    consumer: str = ""
    provider: str = ""
    resource_class: str = ""
    problem: str = ""


class ReshapeFailed(TypedError):
    """The given allocations cannot be moved. It lists all violations, not only the first one."""

    def __init__(self, reason: str, violations: Iterable[Violation] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.violations = list(violations)

    def __str__(self) -> str:
        shown = [o.problem for o in self.violations[:5]]
        if (more := len(self.violations) - len(shown)) > 0:
            shown.append(f"and {more} more")
        return "; ".join([self.reason, *shown])


class ConfigError(TypedError):
    """What is wrong with the configuration. key is a path below the driver's table, or empty for the whole table."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem


class Unsupported(TypedError):
    """The driver does not have this capability with its present configuration. A retry does not help until that changes."""


class InstanceNotFound(TypedError):
    """There is no instance with that uuid."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"no such instance: {uuid}")
        self.uuid = uuid


class InstanceFault(TypedError):
    """The call cannot succeed, and a retry with the same arguments does not help. Nothing was changed.

    The reason is for the owner of the instance: it has no details of the host.
    """

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"instance {uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason
