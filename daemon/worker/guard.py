"""What ties a worker's life to its daemon's, apart from the pipe between them."""

import ctypes
import faulthandler
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def settle(parent: int, descriptors: tuple[int, ...]) -> bool:
    """Make this process a worker of ``parent``; whether ``parent`` still lives.

    When it returns: programs that this process may start do not inherit ``descriptors``; SIGTERM
    ends the process even inside native code, SIGINT (meant for a command in a terminal) does not;
    files are private; a native fault leaves a traceback.
    """
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    os.umask(0o077)
    faulthandler.enable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    if sys.platform == "linux":
        # The pipe's end is not enough: native code that holds the interpreter's lock keeps the
        # thread that reads the pipe from seeing it.
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    # Asked after, not before: a parent that died in between would send no signal.
    return os.getppid() == parent
