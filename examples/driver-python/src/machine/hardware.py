# SPDX-License-Identifier: Apache-2.0
"""What the machine has, from the kernel."""

from __future__ import annotations

import os
from dataclasses import dataclass

from compute_driver import NotReady


@dataclass(frozen=True)
class Hardware:
    """Processors that are online, memory in MiB and the size of a file system in GiB."""

    processors: int
    memory_mb: int
    disk_gb: int


def look(disk: str, meminfo: str = "/proc/meminfo") -> Hardware:
    """Errors: NotReady, if any of it cannot be known now."""
    try:
        stat = os.statvfs(disk)
        memory = _total_memory(meminfo)
    except (OSError, ValueError) as e:
        raise NotReady(f"reading the hardware of the machine: {e}") from e
    return Hardware(os.sysconf("SC_NPROCESSORS_ONLN"), memory, stat.f_blocks * stat.f_frsize >> 30)


def _total_memory(path: str) -> int:
    with open(path, encoding="ascii") as f:
        for line in f:
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) // 1024
    raise ValueError(f"{path} has no MemTotal")
