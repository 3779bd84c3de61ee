# SPDX-License-Identifier: Apache-2.0
"""Names as Placement has them: resource classes, providers, and uuids in their canonical form."""

from __future__ import annotations

import re
import uuid

from compute_driver.errors import Malformed

_CLASS = re.compile(r"[A-Z0-9_]{1,255}\Z")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.IGNORECASE)
MAX_NAME = 200  # characters of a provider's name, as Placement stores it


def canonical_uuid(text: str) -> str:
    """A uuid in lower case with hyphens. Raises Malformed for anything else."""
    if not _UUID.match(text):
        raise Malformed(f"{text[:80]!r} is not a uuid")
    return str(uuid.UUID(text))


def check_node(name: str) -> str:
    """Returns the name of a node. Raises Malformed if it is invalid."""
    if not 1 <= len(name) <= MAX_NAME:
        raise Malformed(f"node {name[:80]!r}: a name has 1 to {MAX_NAME} characters")
    return name


def check_renames(renames: dict[str, str]) -> dict[str, str]:
    """The renames of resource classes that a driver declares, by their former names. Raises RuntimeError if one is invalid."""
    for former, present in renames.items():
        for name in (former, present):
            if not isinstance(name, str) or not _CLASS.match(name):
                raise RuntimeError(f"the driver declares a rename of a resource class, and {name!r} is not the name of one")
        if former == present:
            raise RuntimeError(f"the driver declares that resource class {former} is renamed to itself")
        if present in renames:
            raise RuntimeError(f"the driver declares that resource class {former} is renamed to {present}, which is renamed too")
    return renames
