"""Says as many pieces as told, then something that makes no sense if told so, and dies at once."""

import os
import signal
import sys

from said import frame, pipe

end = pipe()
talk = b"".join(frame("word", number) for number in range(int(sys.argv[2])))
if "nonsense" in sys.argv:
    talk += b"\x00\x00\x00\x02{}"
if "half" in sys.argv:
    talk += frame("half")[:-3]
end.sendall(talk)
os.kill(os.getpid(), signal.SIGKILL)
