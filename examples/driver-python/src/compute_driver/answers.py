# SPDX-License-Identifier: Apache-2.0
"""What a driver may answer instead of a result. Each is raised, and arrives at the agent as the protocol's error detail."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class Failure(Exception):
    """The call fails, for a reason that only its words say. Any other exception is taken for a defect and logged as one."""


class Malformed(Failure):
    """What the agent sent cannot be. Drivers need not raise it: they do not see such a call."""


class Answer(Exception):
    """One of the typed answers of the protocol."""


class NotReady(Answer):
    """The driver cannot tell now, through no fault of its own: a daemon is starting, a device does not answer yet."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ReshapeNeeded(Answer):
    """Inventory that guests use must move to another provider: call again with allocations."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Violation:
    """One reason why a reshape fails. Any of its fields may be empty."""

    consumer: str = ""
    provider: str = ""
    resource_class: str = ""
    problem: str = ""


class ReshapeFailed(Answer):
    """The allocations given cannot be moved; all the reasons, not the first one."""

    def __init__(self, reason: str, violations: Iterable[Violation] = ()) -> None:
        super().__init__(reason)
        self.reason = reason
        self.violations = list(violations)

    def __str__(self) -> str:
        shown = [o.problem for o in self.violations[:5]]
        if (more := len(self.violations) - len(shown)) > 0:
            shown.append(f"and {more} more")
        return "; ".join([self.reason, *shown])


class ConfigError(Answer):
    """What is wrong with the configuration. key is a path below the driver's table, or empty if it is about the whole."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem


class Unsupported(Answer):
    """The driver lacks this ability with its present configuration. Asking again does not help until that changes."""


class InstanceNotFound(Answer):
    """There is no such instance that spawn made."""

    def __init__(self, uuid: str) -> None:
        super().__init__(f"no such instance: {uuid}")
        self.uuid = uuid


class InstanceFault(Answer):
    """It cannot be done, and asking again with the same arguments does not help. Nothing was changed.

    The reason is for the owner of the instance: it mentions nothing of the host that is not theirs to know.
    """

    def __init__(self, uuid: str, reason: str) -> None:
        super().__init__(f"instance {uuid}: {reason}")
        self.uuid = uuid
        self.reason = reason
