# SPDX-License-Identifier: Apache-2.0
"""What a driver may answer instead of a result. Each is raised, and arrives at the agent as the protocol's error detail."""

from __future__ import annotations

from dataclasses import dataclass, field


class Failure(Exception):
    """The call fails, for a reason that only its words say. Any other exception is taken for a defect and logged as one."""


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
class Offender:
    """One thing that stands against a reshape. Any of its fields may be empty."""

    consumer: str = ""
    provider: str = ""
    resource_class: str = ""
    problem: str = ""


@dataclass
class ReshapeFailed(Answer):
    """The allocations given cannot be moved; all the reasons, not the first one."""

    reason: str
    offenders: list[Offender] = field(default_factory=list)

    def __str__(self) -> str:
        return "; ".join([self.reason, *(o.problem for o in self.offenders)])


class ConfigError(Answer):
    """What is wrong with the configuration. key is a path below the driver's table, or empty if it is about the whole."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}" if key else problem)
        self.key = key
        self.problem = problem
