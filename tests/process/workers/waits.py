"""Says that it is there, and waits for ever; ``deaf``: SIGTERM does nothing."""

import signal
import sys

from said import frame, pipe

if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = pipe()
end.sendall(frame("here"))
while True:
    signal.pause()
