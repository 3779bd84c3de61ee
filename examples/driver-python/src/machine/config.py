# SPDX-License-Identifier: Apache-2.0
"""The table [drivers.python.config], checked as a whole before anything of it is used."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from typing import Any

from compute_driver import ConfigError

LAYOUTS = ("children", "node")

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Configuration of the Python driver",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "node": {"description": "Name of the node; without it, the host's.", "type": "string", "minLength": 1, "maxLength": 200},
        "disk": {"description": "A path on the file system that is DISK_GB. Without it /.", "type": "string", "pattern": "^/"},
        "reserved_memory_mb": {"description": "Memory for the host itself. Without it 512.", "type": "integer", "minimum": 0},
        "cpu_allocation_ratio": {"description": "How many VCPU one processor gives. Without it 4.", "type": "number",
                                 "exclusiveMinimum": 0, "maximum": 1000},
        "traits": {"description": "Traits of the node.", "type": "array",
                   "items": {"type": "string", "pattern": "^[A-Z0-9_]{1,255}$"}},
        "gpus": {"description": "The physical GPUs, each with its number of VGPUs.", "type": "object",
                 "propertyNames": {"pattern": "^[A-Za-z0-9_.-]{1,64}$"},
                 "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 1000}},
        "gpu_layout": {"description": "Where VGPUs are: each GPU a child of the node (children, the default), or all on the node "
                                      "itself (node). A change is a reshape.", "enum": list(LAYOUTS)},
        "images": {"description": "A directory with images, by the name of their file. Without it instances have empty disks only.",
                   "type": "string", "pattern": "^/"},
        "former_nodes": {"description": "Nodes that this machine was once and will never be again: their providers may be deleted.",
                         "type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}},
        "look_every": {"description": "Seconds between two looks at the machine, to notice what changed. Without it 5.",
                       "type": "number", "minimum": 0.05, "maximum": 3600},
    },
}


@dataclass(frozen=True)
class Config:
    """The configuration, with its defaults."""

    node: str = ""
    disk: str = "/"
    reserved_memory_mb: int = 512
    cpu_allocation_ratio: float = 4.0
    traits: list[str] = field(default_factory=list)
    gpus: dict[str, int] = field(default_factory=dict)
    gpu_layout: str = "children"
    images: str = ""
    former_nodes: list[str] = field(default_factory=list)
    look_every: float = 5.0


def parse(raw: dict[str, Any]) -> Config:
    """Errors: ConfigError with the key that it is about."""
    known = {f.name for f in fields(Config)}
    for key in raw:
        if key not in known:
            raise ConfigError(key, "is not a key of this driver")
    _text(raw, "node", 200)
    if not _text(raw, "disk", 4096, "/").startswith("/"):
        raise ConfigError("disk", f"{raw['disk']!r}: must be an absolute path")
    if not _text(raw, "images", 4096, "/").startswith("/"):
        raise ConfigError("images", f"{raw['images']!r}: must be an absolute path")
    _number(raw, "reserved_memory_mb", int, 0, 2**31 - 1)
    _number(raw, "cpu_allocation_ratio", (int, float), 0.001, 1000)
    _number(raw, "look_every", (int, float), 0.05, 3600)
    if raw.get("gpu_layout", LAYOUTS[0]) not in LAYOUTS:
        raise ConfigError("gpu_layout", f"{raw['gpu_layout']!r}: must be one of {', '.join(LAYOUTS)}")
    _names(raw.get("former_nodes", []), raw.get("node", ""))
    traits, gpus = raw.get("traits", []), raw.get("gpus", {})
    if not isinstance(traits, list):
        raise ConfigError("traits", "must be a list of names")
    for i, trait in enumerate(traits):
        if not isinstance(trait, str) or not re.fullmatch(r"[A-Z0-9_]{1,255}", trait):
            raise ConfigError(f"traits[{i}]", f"{trait!r}: a trait has 1 to 255 capital letters, digits and underscores")
    if not isinstance(gpus, dict):
        raise ConfigError("gpus", "must be a table of names with their numbers of VGPUs")
    for name in gpus:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,64}", name):
            raise ConfigError(f"gpus.{name}", "a GPU has a name of 1 to 64 letters, digits, underscores, dots and hyphens")
        _number(gpus, name, int, 1, 1000, "gpus.")
    return Config(**raw)


def _names(former: Any, node: str) -> None:
    if not isinstance(former, list):
        raise ConfigError("former_nodes", "must be a list of names")
    for i, name in enumerate(former):
        if not isinstance(name, str) or not 1 <= len(name) <= 200:
            raise ConfigError(f"former_nodes[{i}]", f"{name!r}: must be a text of 1 to 200 characters")
        if name == node:
            raise ConfigError(f"former_nodes[{i}]", f"{name!r} is the node")


def _text(table: dict[str, Any], key: str, most: int, default: str = "x") -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not 1 <= len(value) <= most:
        raise ConfigError(key, f"{value!r}: must be a text of 1 to {most} characters")
    return value


def _number(table: dict[str, Any], key: str, kind: Any, low: float, high: float, prefix: str = "") -> None:
    if key not in table:
        return
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
        what = "a whole number" if kind is int else "a number"
        raise ConfigError(prefix + key, f"{value!r}: must be {what} from {low} to {high}")
