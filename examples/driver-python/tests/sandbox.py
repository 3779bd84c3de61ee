#!/usr/bin/python3 -I
# SPDX-License-Identifier: Apache-2.0
"""Runs a program in the part of a systemd unit's sandbox that is available without systemd:

    sandbox.py UNIT PROGRAM [ARGUMENT...]

NoNewPrivileges, CapabilityBoundingSet (empty only), MemoryDenyWriteExecute, LockPersonality and SystemCallFilter, as the unit says; its
views of the file system, its user and its control group are not. All of it is inherited.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import subprocess
import sys

PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_SET_MDWE = 24, 38, 65
PR_MDWE_REFUSE_EXEC_GAIN = 1
SCMP_ACT_ALLOW, SCMP_ACT_EPERM = 0x7FFF0000, 0x00050000 | errno.EPERM
SCMP_CMP_MASKED_EQ = 7
LAST_CAPABILITY = 63
PROT_WRITE, PROT_EXEC, SHM_EXEC = 2, 4, 0o100000

# What systemd's MemoryDenyWriteExecute leaves of some system calls: the number of an argument, the bits of it that are looked at, and the
# values that they may have. It is a bit more than what the kernel's own way (prctl) refuses: no mprotect that makes anything executable.
HARMLESS = {
    "mmap": (2, PROT_WRITE | PROT_EXEC, (0, PROT_WRITE, PROT_EXEC)),
    "mprotect": (2, PROT_EXEC, (0,)),
    "pkey_mprotect": (2, PROT_EXEC, (0,)),
    "shmat": (2, SHM_EXEC, (0,)),
}

libc = ctypes.CDLL(None, use_errno=True)


class Comparison(ctypes.Structure):
    """libseccomp's struct scmp_arg_cmp."""

    _fields_ = [("argument", ctypes.c_uint), ("operator", ctypes.c_int), ("mask", ctypes.c_uint64), ("value", ctypes.c_uint64)]


def prctl(option: int, value: int) -> None:
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl {option}: {os.strerror(number)}")


def try_prctl(option: int, value: int) -> None:
    """prctl, of something that an older kernel does not know."""
    try:
        prctl(option, value)
    except OSError as e:
        if e.errno != errno.EINVAL:
            raise


def settings(unit: str) -> dict[str, list[str]]:
    """The settings of the section [Service], each with all its values."""
    out: dict[str, list[str]] = {}
    section = ""
    with open(unit, encoding="utf-8") as file:
        for line in map(str.strip, file):
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line and line[0] not in "#;":
                key, _, value = line.partition("=")
                out.setdefault(key, []).append(value)
    return out


def expand(names: list[str]) -> set[str]:
    """System calls by their names, and those of groups (@system-service)."""
    out: set[str] = set()
    for name in names:
        if name.startswith("@"):
            text = subprocess.run(["systemd-analyze", "syscall-filter", name], check=True, capture_output=True, text=True).stdout
            listed = [line.strip() for line in text.splitlines()[1:]]
            out |= expand([line for line in listed if line and not line.startswith("#")])
        else:
            out.add(name)
    return out


def allowed(filters: list[str]) -> set[str]:
    """What an allow-list, and the deny-lists after it, leave."""
    out: set[str] = set()
    for value in filters:
        if value.startswith("~"):
            out -= expand(value[1:].split())
        else:
            out |= expand(value.split())
    return out


def filter_calls(names: set[str], no_code: bool) -> None:
    """Anything but these system calls fails with EPERM; with no_code, those too that make code of data."""
    seccomp = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    seccomp.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(seccomp.seccomp_init(ctypes.c_uint32(SCMP_ACT_EPERM)))
    for name in sorted(names):
        number = seccomp.seccomp_syscall_resolve_name(name.encode())
        rules: list[Comparison | None] = [None]
        if no_code and name in HARMLESS:
            argument, mask, values = HARMLESS[name]
            rules = [Comparison(argument, SCMP_CMP_MASKED_EQ, mask, value) for value in values]
        for rule in rules if number >= 0 else []:
            compared = (0, None) if rule is None else (1, ctypes.byref(rule))
            if seccomp.seccomp_rule_add_array(context, ctypes.c_uint32(SCMP_ACT_ALLOW), number, *compared) != 0:
                raise OSError(f"the rule for system call {name} cannot be added")
    if (failed := seccomp.seccomp_load(context)) != 0:
        raise OSError(-failed, f"loading the filter: {os.strerror(-failed)}")


def main(unit: str, program: list[str]) -> None:
    said = settings(unit)

    def yes(key: str) -> bool:
        return said.get(key, ["no"])[-1] == "yes"

    names = allowed(said.get("SystemCallFilter", []))
    if yes("LockPersonality"):
        names -= {"personality"}
    if said.get("CapabilityBoundingSet") == [""] and os.geteuid() == 0:  # others have none to drop
        for capability in range(LAST_CAPABILITY + 1):
            try_prctl(PR_CAPBSET_DROP, capability)
    if yes("NoNewPrivileges"):
        prctl(PR_SET_NO_NEW_PRIVS, 1)
    if yes("MemoryDenyWriteExecute"):
        try_prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN)  # since Linux 6.3; systemd before 254 has the filter only
    if names:
        filter_calls(names, yes("MemoryDenyWriteExecute"))
    os.execv(program[0], program)


if __name__ == "__main__":
    if len(sys.argv) < 3 or platform.system() != "Linux":
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
