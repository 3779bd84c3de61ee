#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the driver: one executable file, so that the agent can check and pin all of it by a single digest.

    build.py OUT            the executable
    build.py --stage DIR    its parts as a directory, for the tests

The file is a zip archive that Python runs. The same sources give the same bytes. Needs Debian's protobuf-compiler.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "src"
OWN = HERE / "proto/driver.proto"  # a copy, in a driver that is not in compute-agent's checkout
PROTOS = [OWN if OWN.exists() else HERE.parents[1] / "plugins/proto/driver/v1/driver.proto", HERE / "proto/envelope.proto"]
INTERPRETER = b"#!/usr/bin/python3 -IB\n"  # nothing from the environment, nothing written beside it


def stage(to: Path) -> None:
    """Copies the sources and generates the code of the messages."""
    for source in sorted(SOURCES.rglob("*.py")):
        target = to / source.relative_to(SOURCES)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
    for proto in PROTOS:
        command = ["protoc", f"--proto_path={proto.parent}", f"--python_out={to}/compute_driver", proto.name]
        try:
            subprocess.run(command, check=True)
        except FileNotFoundError:
            sys.exit("build.py: protoc is missing; install it with: apt-get install protobuf-compiler")
        except subprocess.CalledProcessError as e:
            sys.exit(f"build.py: {' '.join(command)} failed with {e.returncode}")


def pack(directory: Path, out: Path) -> None:
    """Writes the archive, with the same time in every entry, and puts it in place in one step."""
    unfinished = out.with_name(out.name + ".unfinished")
    with open(unfinished, "wb") as file:
        file.write(INTERPRETER)
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in sorted(directory.rglob("*.py")):
                entry = zipfile.ZipInfo(str(path.relative_to(directory)), (1980, 1, 1, 0, 0, 0))
                entry.external_attr = 0o100644 << 16
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    unfinished.chmod(0o755)
    os.replace(unfinished, out)


def main(args: list[str]) -> None:
    if len(args) == 2 and args[0] == "--stage":
        stage(Path(args[1]))
    elif len(args) == 1 and not args[0].startswith("-"):
        with tempfile.TemporaryDirectory() as directory:
            stage(Path(directory))
            pack(Path(directory), Path(args[0]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
