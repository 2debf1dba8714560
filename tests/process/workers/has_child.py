"""Leaves a child behind that holds the pipe, tells its pid, and exits if told ``go``."""

import os
import signal
import sys

from said import frame, pipe

end = pipe()
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        signal.pause()
end.sendall(frame("child", child))
if "go" in sys.argv:
    os._exit(4)
while True:
    signal.pause()
