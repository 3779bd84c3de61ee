# SPDX-License-Identifier: Apache-2.0
"""The plugin as a process: its name, and that it does not outlive the agent."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time


def set_name(driver: str) -> None:
    """What ps shows. The agent starts plugins by file descriptor, and their name would be "3". 15 bytes are kept."""
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as f:
        f.write(f"driver-{driver}")


def keep_executable() -> None:
    """Keeps descriptor 3, the program that the agent checked and Python reads, from children."""
    with contextlib.suppress(OSError, IndexError):
        if os.path.samestat(os.fstat(3), os.stat(sys.path[0])):  # a program that is an archive is its own first path
            os.set_inheritable(3, False)


def end_with_parent() -> None:
    """Ends this process, and what it started if it leads its group, when the process that started it dies.

    The agent also sets a parent-death signal; this is for other parents.
    """
    parent = os.getppid()

    def watch() -> None:
        _wait_for_death(parent)
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _wait_for_death(pid: int) -> None:
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        while os.getppid() == pid and not poll.poll(60_000):
            pass
        os.close(fd)
    while os.getppid() == pid:
        time.sleep(1)
