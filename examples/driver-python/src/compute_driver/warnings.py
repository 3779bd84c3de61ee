# SPDX-License-Identifier: Apache-2.0
"""Warnings as they are sent: valid, sorted by name, without duplicates, and at most 100."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compute_driver import driver_pb2 as pb
from compute_driver.capabilities import MAX_WARNING_NAME, MAX_WARNING_TEXT, MAX_WARNINGS, DriverWarning
from compute_driver.status import cut

_INVALID = re.compile(r"[^a-z0-9._:-]")
MORE = "more-warnings"  # stands for those above the limit


def sanitize(warnings: Iterable[DriverWarning] | None) -> list[pb.Warning]:
    """Returns valid messages. Warnings of one name are joined; those above the limit are counted in one."""
    texts: dict[str, list[str]] = {}
    for w in warnings or ():
        texts.setdefault(warning_name(w.name), []).append(str(w.text))
    out = [pb.Warning(name=name, text=_shorten("; ".join(texts[name]))) for name in sorted(texts)]
    if (more := len(out) - (MAX_WARNINGS - 1)) > 1:
        out[MAX_WARNINGS - 1:] = [pb.Warning(name=MORE, text=f"and {more} more warnings, which are not shown")]
    return out


def warning_name(name: str) -> str:
    """Returns a valid name, with hyphens for other characters."""
    return _INVALID.sub("-", str(name).lower()).lstrip("._:-")[:MAX_WARNING_NAME] or "unnamed"


def _shorten(text: str) -> str:
    return cut(text if len(text) <= MAX_WARNING_TEXT else text[:MAX_WARNING_TEXT - 3] + "...")
