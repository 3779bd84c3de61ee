# SPDX-License-Identifier: Apache-2.0
"""Warnings as they are sent: sorted by name, without duplicates, and at most 100."""

from __future__ import annotations

import re
from collections.abc import Iterable

from compute_driver import driver_pb2 as pb
from compute_driver.abilities import MAX_WARNING_NAME, MAX_WARNING_TEXT, MAX_WARNINGS, Warned
from compute_driver.status import cut

_STRANGE = re.compile(r"[^a-z0-9._:-]")
MORE = "more-warnings"  # stands for all that are too many


def fit(told: Iterable[Warned] | None) -> list[pb.Warning]:
    """The messages. Warnings of one name are merged, those beyond the bound in one that says how many they are."""
    texts: dict[str, list[str]] = {}
    for w in told or ():
        texts.setdefault(named(w.name), []).append(str(w.text))
    out = [pb.Warning(name=name, text=_shorten("; ".join(texts[name]))) for name in sorted(texts)]
    if (more := len(out) - (MAX_WARNINGS - 1)) > 1:
        out[MAX_WARNINGS - 1:] = [pb.Warning(name=MORE, text=f"and {more} more warnings, which are not shown")]
    return out


def named(name: str) -> str:
    """The name that is most like this one, among those that a warning can have."""
    return _STRANGE.sub("-", str(name).lower()).lstrip("._:-")[:MAX_WARNING_NAME] or "unnamed"


def _shorten(text: str) -> str:
    return cut(text if len(text) <= MAX_WARNING_TEXT else text[:MAX_WARNING_TEXT - 3] + "...")
