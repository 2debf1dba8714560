"""A process's birth as the kernel numbers it: with the pid, it is that process and no other (E3).

Start times in seconds are for people: they come from the wall clock, and move when it is set.
"""

import sys


def birth_of(pid: int) -> str | None:
    """The mark of the process's start, constant while it lives; ``None`` if there is none."""
    if sys.platform == "linux":
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                # The command's name, in parentheses, may hold anything; field 22 comes after it.
                return file.read().rpartition(")")[2].split()[19]
        except (OSError, IndexError):
            return None
    else:
        import psutil  # noqa: PLC0415  (its import is dear, and only other platforms need it)

        try:
            return repr(psutil.Process(pid).create_time())
        except psutil.Error:
            return None
