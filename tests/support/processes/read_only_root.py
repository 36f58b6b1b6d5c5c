"""`python read_only_root.py FOLDER... -- COMMAND...`: run a command that may only write below these folders.

Simulates a container with a read-only root file system through Linux's Landlock, which needs no privileges: any other
write fails with "permission denied". Exits with 77 if the kernel has no Landlock.
"""

from __future__ import annotations

import ctypes
import os
import sys

UNSUPPORTED = 77
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38
_WRITE_FILE = 1 << 1
# Removing, making of each kind, moving between folders, truncating; the last two came with versions 2 and 3.
_CHANGES = sum(1 << bit for bit in (1, *range(4, 13)))
_REFER, _TRUNCATE = 1 << 13, 1 << 14
_DEVICES = ("/dev/null", "/dev/tty")


class _Ruleset(ctypes.Structure):
    _fields_ = (("handled_access_fs", ctypes.c_uint64),)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


_libc = ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    """Return the kernel's version of Landlock, or 0 if it has none."""
    return max(0, int(_libc.syscall(_CREATE_RULESET, None, 0, _VERSION)))


def restrict(folders: list[str]) -> None:
    """Restrict writes of this process and its children to these folders."""
    version = landlock_version()
    access = _CHANGES | (_REFER if version >= 2 else 0) | (_TRUNCATE if version >= 3 else 0)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(_Ruleset(access)), ctypes.sizeof(_Ruleset), 0))
    on_files = access & (_WRITE_FILE | _TRUNCATE)
    for path, allowed in [*((each, access) for each in folders), *((each, on_files) for each in _DEVICES)]:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _PathBeneath(allowed, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(descriptor)
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _checked(returned: int) -> int:
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


if __name__ == "__main__":
    split = sys.argv.index("--")
    if not landlock_version():
        sys.exit(UNSUPPORTED)
    restrict(sys.argv[1:split])
    os.execvp(sys.argv[split + 1], sys.argv[split + 1 :])
