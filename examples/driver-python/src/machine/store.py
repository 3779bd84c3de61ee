# SPDX-License-Identifier: Apache-2.0
"""Instances on disk: each has a directory below the driver's state directory. There is no hypervisor.

    instances/UUID/root.disk         sparse, or a copy of the image
    instances/UUID/instance.json     written last, and removed last: without it the instance is incomplete
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
class StoredInstance:
    """The record of an instance."""

    uuid: str
    name: str = ""
    project_id: str = ""
    user_id: str = ""
    power: str = PowerState.NOSTATE.name
    allocations: dict[str, dict[str, int]] = field(default_factory=dict)

    def instance(self) -> Instance:
        return Instance(self.uuid, self.name, PowerState[self.power], f"files-{self.uuid[:8]}")


class InstanceStore:
    """The instances on disk. The caller serializes calls about one."""

    def __init__(self, state_dir: str) -> None:
        self._dir = Path(state_dir) / "instances"
        self._adopt(Path(state_dir))

    def _adopt(self, state_dir: Path) -> None:
        """Moves the instances of a former release from the agent's own directory, DIR, which all drivers shared, to DIR/drivers/NAME."""
        shared = state_dir.parent.parent / "instances"
        if state_dir.parent.name == "drivers" and shared.is_dir() and not self._dir.exists():
            with contextlib.suppress(FileNotFoundError):  # the process that this one replaces has moved them
                shared.rename(self._dir)

    def all(self) -> list[StoredInstance]:
        """Lists all instances. Incomplete ones have no power state."""
        if not self._dir.is_dir():
            return []
        return [self.find(name) or StoredInstance(name) for name in sorted(os.listdir(self._dir)) if _is_uuid(name)]

    def find(self, uuid: str) -> StoredInstance | None:
        """Returns a complete instance. Raises OSError or ValueError if it cannot be read: it exists in an unknown state."""
        try:
            record = StoredInstance(**json.loads((self._dir / uuid / RECORD).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None
        except TypeError as e:
            raise ValueError(f"{self._dir / uuid / RECORD}: {e}") from e
        if record.uuid != uuid or record.power not in PowerState.__members__:
            raise ValueError(f"{self._dir / uuid / RECORD} is of instance {record.uuid} in state {record.power}")
        return record

    def exists(self, uuid: str) -> bool:
        """Whether anything of an instance exists."""
        return (self._dir / uuid).exists()

    def create(self, call: Call, spec: InstanceSpec, image: Path | None) -> StoredInstance:
        """Creates an instance, or completes it: disks are created again, since they can be incomplete."""
        home = self._dir / spec.uuid
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            disks = {"root": spec.flavor.root_gb << 30, "ephemeral": spec.flavor.ephemeral_gb << 30, "swap": spec.flavor.swap_mb << 20}
            for name, size in disks.items():
                if size or (name == "root" and image is not None):
                    _create_disk(call, home / f"{name}.disk", size, image if name == "root" else None)
        except TooLarge as e:
            self.remove(spec.uuid)
            raise InstanceFault(spec.uuid, str(e)) from e
        record = StoredInstance(spec.uuid, spec.name, spec.project_id, spec.user_id, PowerState.RUNNING.name, spec.allocations)
        return self.save(record)

    def save(self, record: StoredInstance) -> StoredInstance:
        """Writes the record, atomically."""
        path = self._dir / record.uuid / RECORD
        unfinished = path.with_suffix(".unfinished")
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump(vars(record), file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
        with _opened(path.parent) as directory:
            os.fsync(directory)
        return record

    def power(self, record: StoredInstance, to: PowerState) -> StoredInstance:
        """Starts or stops an instance."""
        return record if record.power == to.name else self.save(replace(record, power=to.name))

    def remove(self, uuid: str) -> None:
        """Removes all of an instance, its record last: an interrupted removal is repeated."""
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
    """A disk that does not fit."""


def _create_disk(call: Call, path: Path, size: int, image: Path | None) -> None:
    """Creates a sparse file of that size, which begins with the image."""
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
                raise TooLarge(f"a disk of {size >> 30} GiB does not fit on the host") from e
        disk.flush()
        os.fsync(disk.fileno())


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
