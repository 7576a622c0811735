"""A child process ends with the one that started it. Imports nothing that takes time: it must come first."""

import ctypes
import os
import signal

PARENT = "VOICE_RUNTIME_PARENT"  # pid of the supervisor, in a worker's environment
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however it ends; at once when it has ended already."""
    parent = int(os.environ.get(PARENT) or os.getppid())
    if PARENT in os.environ:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides what ends
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
