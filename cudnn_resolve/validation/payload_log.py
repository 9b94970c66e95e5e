"""cuDNN's own log of its calls, read back by the process that makes them: the proof that cuDNN did the work.

The log must be ordered before cuDNN is loaded. It goes to a file that has no name any more, so that nothing is left behind however the
process ends. Python 3.6 grammar, standard library only.
"""

import os
import re
import sys
import tempfile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CALL = re.compile(rb"function (cudnn[A-Za-z0-9_]{1,80})\(\) called")
REASON = re.compile(rb"^e!\s+Error: ([^\n]{1,500})$", re.MULTILINE)
WORK = re.compile(
    r"cudnn(Convolution(Forward|BiasActivationForward|BackwardData|BackwardFilter)|BackendExecute|RNN(Forward|Backward)\w*"
    r"|FusedOpsExecute|Im2Col)$"
)
"""Functions that compute, apart from those that prepare."""
MOST_BYTES = 64 << 20
"""Of a log that is read; more is thrown away unread."""


class Log:
    """What cuDNN writes from now on; made before cuDNN is loaded."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115 - open until the process ends
        os.environ["CUDNN_LOGINFO_DBG"] = "1"
        os.environ["CUDNN_LOGLEVEL_DBG"] = "3"
        os.environ["CUDNN_LOGDEST_DBG"] = "/proc/self/fd/{}".format(self.file.fileno())
        self.at = 0

    def calls(self) -> "dict[str, int]":
        """How often each function was called since this was last asked."""
        descriptor = self.file.fileno()
        end = os.fstat(descriptor).st_size
        content = os.pread(descriptor, min(end - self.at, MOST_BYTES), self.at) if end > self.at else b""
        self.at = end
        counted = {}  # type: dict[str, int]
        for found in CALL.finditer(content):
            name = found.group(1).decode("ascii")
            counted[name] = counted.get(name, 0) + 1
        return counted

    def reasons(self) -> str:
        """Why cuDNN refused, in the last words of its log that were not read yet; "" where it says nothing."""
        descriptor = self.file.fileno()
        end = os.fstat(descriptor).st_size
        content = os.pread(descriptor, min(end - self.at, 1 << 16), max(self.at, end - (1 << 16))) if end > self.at else b""
        found = [match.group(1).decode("utf-8", "replace") for match in REASON.finditer(content)]
        return found[-1][:500] if found else ""

    def watched(self, compute: "Callable[[], dict[str, Any]]") -> "dict[str, Any]":
        """What `compute` gives, with `cudnn`: how often cuDNN computed meanwhile, and `logged`: whether it wrote anything at all."""
        self.calls()
        try:
            answer = compute()
        except Exception as error:
            why = self.reasons()
            if why and why not in str(error):
                raise RuntimeError("{}: {} (cuDNN: {})".format(type(error).__name__, error, why)) from error
            raise
        calls = self.calls()
        answer["cudnn"] = {name: count for name, count in calls.items() if WORK.match(name)}
        answer["logged"] = self.at > 0
        return answer


if __name__ == "__main__":
    sys.exit("run payload_run.py, which frames this")
