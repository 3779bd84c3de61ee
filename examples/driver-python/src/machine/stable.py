# SPDX-License-Identifier: Apache-2.0
"""Where instances are kept: a directory each, below the driver's state directory. There is no hypervisor; their files are all of them.

    instances/UUID/root.disk         sparse, or a copy of the image
    instances/UUID/instance.json     written last, and removed last: what has none was never completed
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

from compute_driver import Call, Instance, InstanceFault, InstanceSpec, PowerState

RECORD = "instance.json"
COPIED_AT_ONCE = 4 << 20  # bytes; then it checks whether the agent still waits


@dataclass(frozen=True)
class Kept:
    """What is kept of an instance."""

    uuid: str
    name: str = ""
    project_id: str = ""
    user_id: str = ""
    power: str = PowerState.NOSTATE.name
    allocations: dict[str, dict[str, int]] = field(default_factory=dict)

    def instance(self) -> Instance:
        return Instance(self.uuid, self.name, PowerState[self.power], f"files-{self.uuid[:8]}")


class Stable:
    """The instances on disk. The caller serializes calls about one."""

    def __init__(self, state_dir: str) -> None:
        self._dir = Path(state_dir) / "instances"
        self._adopt(Path(state_dir))

    def _adopt(self, state_dir: Path) -> None:
        """Takes along what a former release kept in the agent's own directory, which all drivers shared; this one's is DIR/drivers/NAME."""
        shared = state_dir.parent.parent / "instances"
        if state_dir.parent.name == "drivers" and shared.is_dir() and not self._dir.exists():
            with contextlib.suppress(FileNotFoundError):  # the process that this one replaces was faster
                shared.rename(self._dir)

    def all(self) -> list[Kept]:
        """Every instance. Those that were never completed are in no power state."""
        if not self._dir.is_dir():
            return []
        return [self.find(name) or Kept(name) for name in sorted(os.listdir(self._dir)) if _is_uuid(name)]

    def find(self, uuid: str) -> Kept | None:
        """A completed instance. Raises OSError or ValueError for one that cannot be read: it exists in an unknown state."""
        try:
            kept = Kept(**json.loads((self._dir / uuid / RECORD).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except TypeError as e:
            raise ValueError(f"{self._dir / uuid / RECORD}: {e}") from e
        if kept.uuid != uuid or kept.power not in PowerState.__members__:
            raise ValueError(f"{self._dir / uuid / RECORD} is of instance {kept.uuid} in state {kept.power}")
        return kept

    def exists(self, uuid: str) -> bool:
        """Whether there is anything of an instance."""
        return (self._dir / uuid).exists()

    def make(self, call: Call, spec: InstanceSpec, image: Path | None) -> Kept:
        """Makes an instance, or completes it: disks are made again, since they may be incomplete."""
        home = self._dir / spec.uuid
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            disks = {"root": spec.flavor.root_gb << 30, "ephemeral": spec.flavor.ephemeral_gb << 30, "swap": spec.flavor.swap_mb << 20}
            for name, size in disks.items():
                if size or (name == "root" and image is not None):
                    _make_disk(call, home / f"{name}.disk", size, image if name == "root" else None)
        except TooLarge as e:
            self.remove(spec.uuid)
            raise InstanceFault(spec.uuid, str(e)) from e
        kept = Kept(spec.uuid, spec.name, spec.project_id, spec.user_id, PowerState.RUNNING.name, spec.allocations)
        return self.keep(kept)

    def keep(self, kept: Kept) -> Kept:
        """Writes what is kept, in one step."""
        record = self._dir / kept.uuid / RECORD
        unfinished = record.with_suffix(".unfinished")
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(vars(kept), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, record)
        with _opened(record.parent) as directory:
            os.fsync(directory)
        return kept

    def power(self, kept: Kept, to: PowerState) -> Kept:
        """Starts or stops an instance."""
        return kept if kept.power == to.name else self.keep(replace(kept, power=to.name))

    def remove(self, uuid: str) -> None:
        """Removes all of an instance, its record last: an interrupted removal is seen, and done again."""
        home = self._dir / uuid
        for file in home.glob("*"):
            if file.name != RECORD:
                file.unlink()
        with contextlib.suppress(FileNotFoundError):
            (home / RECORD).unlink()
        with contextlib.suppress(FileNotFoundError):
            home.rmdir()


def _is_uuid(name: str) -> bool:
    with contextlib.suppress(ValueError):
        return str(UUID(name)) == name
    return False


class TooLarge(Exception):
    """A disk that cannot be."""


def _make_disk(call: Call, path: Path, size: int, image: Path | None) -> None:
    """A sparse file of that size, which begins with the image."""
    if image is not None and 0 < size < image.stat().st_size:
        raise TooLarge(f"the image is larger than the disk of {size >> 30} GiB")
    with open(path, "wb") as disk:
        if image is not None:
            with open(image, "rb") as source:
                while block := source.read(COPIED_AT_ONCE):
                    call.check("copying the image")
                    disk.write(block)
        if size:
            try:
                disk.truncate(size)
            except OSError as e:
                raise TooLarge(f"a disk of {size >> 30} GiB is more than the host can hold") from e
        disk.flush()
        os.fsync(disk.fileno())


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
