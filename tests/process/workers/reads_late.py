"""Reads nothing until it gets SIGUSR1; then reads as many frames as told and tells their bytes."""

import signal
import struct
import sys

from said import frame, pipe

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
end = pipe()
end.sendall(frame("here"))
signal.sigwait({signal.SIGUSR1})
file = end.makefile("rb")
total = 0
for _ in range(int(sys.argv[2])):
    (length,) = struct.unpack(">I", file.read(4))
    total += 4 + len(file.read(length))
end.sendall(frame("read", total))
