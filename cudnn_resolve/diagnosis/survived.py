"""What a log shows after a failure: a program that went on or works again, and the change that cured it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from cudnn_resolve.diagnosis.context import GPU_THERE
from cudnn_resolve.diagnosis.line_origin import head, is_of_other, programs, speaker
from cudnn_resolve.diagnosis.model import Match, Suspect, values_of
from cudnn_resolve.diagnosis.weigh import FINDING, OWN_FAULT, summary_of
from cudnn_resolve.matrix.symptom import Cause

_END, _BAD_END, _EPOCH, _WORKS = "context-good-end", "context-bad-end", "context-epoch", "gpu-works"
_AT_WORK, _TESTS, _WORK, _DIED = "context-gpu-works", "context-tests-passed", "context-at-work", "context-died"
_CARRIED_ON, _STEPS = "context-carried-on", "context-steps-done"
_NO_GPU = frozenset({"driver_not_loaded", "no_gpu_runtime", "cuda_runtime_missing", "cpu_only_build", "container_gpu_not_passed"})
"""Causes that are normal on a machine without a GPU."""
_GPU_SHOWN = GPU_THERE | {"cuda-opened", "gpu-asked"}
_START, _RESULT, _BUILT = "context-start", "context-result", "context-image-built"
_ANSWER, _REMOTE = "context-gpu-answer", "context-remote-shell"
_WORKS_NOW = (_WORK, _RESULT, _EPOCH, _CARRIED_ON, _AT_WORK, _TESTS)
"""Symptoms of a program that works."""
_ELSEWHERE = frozenset({"docker", "composed", "kubernetes", "container-start", "hosted-notebook"})
"""Features of logs of more than one machine: an answer may be of another one than the failure."""
_OTHERS_CARD = frozenset({"other-gpu", "macos"})
_OF_PIP = frozenset({"pip_pin_unavailable", "pip_wheel_unavailable_for_python"})
_NO_DRIVER = frozenset({"driver_not_loaded", "no_gpu_runtime"})
_MERE_WARNING = (
    r"RuntimeWarning: numpy\.\w{1,20} size changed|^AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'"
    r"|usage\. Stacktrace: |(?:cuDNN|cuTENSOR|NCCL) library could not be preloaded|^Reason: ImportError \("
    r"|^RuntimeError: module compiled against API version|Can't find libdevice directory|torch\._dynamo\.convert_frame: \[WARNING\]"
    r"|^Can ?not use cuDNN on context \S{1,20}: |try_flags_\w{1,20}\.c:|^WARNING: infoROM is corrupted at gpu "
    r"|The installed Paddle is compiled with (?:CUDNN|CUDA) |UserWarning: Failed to load image Python extension: "
    r"|^E\d{4} .{0,80}Cannot create Cublas handle\.|We fallback to the NVIDIA driver for some compilation"
    r"|Falling back to the CUDA driver for PTX compilation; ptxas does not support|\bUsed ptxas at "
    r"|Unsloth: (?:CUDA is not linked properly|vLLM was built|torch(?:vision)?==)|multiple CuPy packages are installed"
    r"|libcudart\.so (?:as expected! Searching|not found in any environmental path\. Searching)"
    r"|\bWARN(?:ING)?\b(?=.{0,200}\b(?:flash_?attn|xformers|apex|sageattention)\b)"
    r"(?=.{0,200} (?:[Cc]ould not|[Cc]an ?not|[Cc]an't|[Ff]ailed to|[Uu]nable to) (?:be )?import)"
)
"""Messages after which the program that prints them goes on, without what it lacks: at work later, it does not need that."""
_OF_OPTIONAL = r"|compiled using NumPy 1|compiled with NumPy 2|_ARRAY_API not found"
"""The same where pandas imports an optional module."""
_PACKAGED, _NO_NVCC = "context-package-built", r"(\w{1,60}) was requested, but nvcc was not found"
_LEFT_OUT, _CARD = frozenset({"gpu_arch_too_old_for_build", "gpu_arch_too_new_for_build"}), "context-gpu-name"
_PATH_DROPPED, _INSTALLS, _GENCODE = "context-path-dropped", "context-install-command", "context-gencode"
_SEEN, _LISTED = "context-gpu-seen", ("context-framework", "context-framework-shown", "context-engine")
_OF_SMI = (_SEEN, _ANSWER, "context-smi-table")
_PINNED = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]{1,60})==(\d[\w.]{0,30})")
_MISMATCH, _BOOTED, _POD, _PROMPT = "driver_library_mismatch", "context-booted", "context-pod-runs", "context-host-prompt"
_BY_PATH = frozenset(
    {"out_of_memory", "cudnn_too_old_for_framework", "cudnn_too_new_for_framework", "cudnn_missing", "unrecognised", _MISMATCH}
)
"""Causes that a library of LD_LIBRARY_PATH, found first, may look like."""
_COMPILED = r"(?i)No CUDA runtime is found|CUDA_HOME|without cuda|cpu[- ]only"
"""Wording of a build whose result depends on the GPU that it finds."""
_AT_START = _NO_GPU | {"driver_too_old", "driver_wedged", "gpu_hidden_by_env", "lib_not_on_path"}
"""Causes of an invisible GPU; a program that later shows its GPU at work has found another way."""
_CUDNN_UNFOUND = frozenset({"cudnn_missing", "cudnn_major_mismatch"})
"""Causes for which TensorFlow, whose loader reports them, uses no GPU at all."""
_FELL_BACK, _SUCCEEDED, _OF_TORCH, _OF_JAX = "context-fell-back", "context-succeeded", frozenset({"torch"}), frozenset({"jax"})
"""Lines of programs that took another way or ended well, and two programs of those that `programs` tells."""
_HANDLED, _NEAR = "context-handled", 3
"""A line of a program that handles out-of-memory errors, and its distance from the failure."""
_IN_USE = frozenset({"out_of_memory", "bad_input", "hardware_fault"})
"""Failures of a GPU in use: a program that continues after them has not merely fallen back to the CPU."""
_CURED = 84
"""Weight of a cause that a change in the log itself has removed."""
_EPOCHS = 3
"""Lines of further epochs that show a training continues; a single one may be of another rank, or about to fail."""
_SURE = 0.6
_LEVEL = r"\b(?:INFO|NOTICE|info|notice|Info)\b"
_PROSE = r"[A-Za-z]{2,30} [a-z]{2,30}"
_UNIT = r"(?:h|m|s|d|ms|hours?|hrs?|minutes?|mins?|seconds?|secs?|days?)?"
_DURATION = (
    r"(?i)[\s.!,:;(-]{0,4}(?:(?:in|after|at|on|took|time|total time)[\s:=]{1,3})?"
    rf"(?:[\d:.,TZ+-]{{1,25}} ?{_UNIT}[ ,]{{0,2}}(?:and )?){{0,4}}[\s.!)]{{0,4}}"
)
_NONE = r"\W{0,4}0(?![\d.:])"


def mark_survived(
    ranked: Iterable[Suspect], latest: Mapping[str, Sequence[Match]], features: frozenset[str], causes: Mapping[str, Cause]
) -> list[Suspect]:
    """Reduce the weight of failures after which the same program continued, and add the line that shows it.

    A reported success makes a failure less sure; only work done after it makes it a warning. Unless the log shows a GPU at work, a
    GPU that was not found keeps its weight: the program continued without it.
    """
    return [_marked(_Aftermath(suspect, latest, features), causes[suspect.cause]) for suspect in ranked]


def _marked(after: _Aftermath, cause: Cause) -> Suspect:
    suspect = after.suspect
    if (cured := _cured(suspect, after.failed, after.latest)) is not None:
        return cured
    failed_again = bool(after.later(_BAD_END))  # then a later success is not that of the failed program
    started = next(filter(after.finds_gpu, after(_AT_WORK)), None)
    survived = (started, "the program has a GPU") if started else None
    if survived is None and not failed_again:
        survived = after.went_on() or after.not_needed()
    end = None if failed_again else next(filter(_is_end, after(_END)), None)
    epochs = after(_EPOCH)
    goes_on = len(epochs) >= _EPOCHS
    severity: str | None = "info"
    if survived is not None:
        (shown, how), weight = survived, FINDING - 1.0
    elif (_WORKS in after.features or suspect.cause in _IN_USE) and (end or goes_on):
        shown, how = (end, "the program succeeded") if end else (epochs[-1], "the training continues")
        worked = goes_on or (end is not None and "reached" in end.fields)
        weight = 100 * _SURE
        if not (goes_on and after.handled):
            severity = "warning" if worked or after.handled else suspect.severity
    else:
        return suspect
    summary = f"{summary_of(suspect, cause)}; but afterwards {how} (line {shown.line})"
    weight, effects = min(suspect.weight, weight), (*suspect.effects, shown)
    return replace(suspect, summary=summary, weight=weight, severity=severity, effects=effects)


class _Aftermath:
    """What a log shows after the last failure of a suspect. Called with a symptom, it gives what the failed program wrote of it."""

    def __init__(self, suspect: Suspect, latest: Mapping[str, Sequence[Match]], features: frozenset[str]) -> None:
        self.suspect = suspect
        self.latest = latest
        self.features = features
        self.told = [match for match in suspect.every if match.symptom.role != "context"]
        last = (found for match in self.told or suspect.every for found in latest[match.symptom.id])
        self.failed = max(last, key=lambda match: match.line)
        self.programs = programs(suspect.every)
        self.handled = any(abs(match.line - self.failed.line) <= _NEAR for match in latest[_HANDLED])

    def later(self, name: str) -> list[Match]:
        """Matches of a symptom after the failure."""
        return [match for match in self.latest[name] if match.line > self.failed.line]

    def __call__(self, name: str) -> list[Match]:
        """The same, written by the failed program, and not by what a later command runs."""
        who = speaker(self.failed.text)
        return [match for match in self.later(name) if speaker(match.text) == who and not is_of_other(match, self.failed, self.latest)]

    def first(self, name: str) -> Match | None:
        """The first of these."""
        return next(iter(self(name)), None)

    def went_on(self) -> tuple[Match, str] | None:
        """The line showing that a program did not need what it failed to find or get, and its wording.

        Tests passed; or the program got to work although no GPU is shown or expected, or it handles out-of-memory errors.
        """
        if (passed := self.first(_TESTS)) is not None:
            return passed, "all tests passed"
        if self(_DIED):
            return None
        cause = self.suspect.cause
        is_left_out = cause in _LEFT_OUT  # another GPU may do the work
        work = [*self(_WORK), *self(_EPOCH)[not is_left_out :], *self(_CARRIED_ON)]
        works = min(work, key=lambda match: match.line, default=None)
        worked = works or self.first(_STEPS)
        mere = _MERE_WARNING + (_OF_OPTIONAL if "numpy-optional" in self.features else "")
        if worked is not None and self.told and all(re.search(mere, match.text) for match in self.told):
            return worked, "the program continues, since this is only a warning"
        if worked is not None and (way := self._other_way()) is not None:
            return way
        asked = {found[1].replace("_", "-") for match in self.suspect.matches if (found := re.search(_NO_NVCC, match.text))}
        names = rf"\b(?:{'|'.join(asked) or '(?!)'})(?!-[a-z])"
        packaged = (match for match in self(_PACKAGED) if re.search(names, match.fields["packages"].replace("_", "-")))
        if (built := next(packaged, None)) is not None:
            return built, "the package is built, as a wheel for it exists"
        if works is None:
            return None
        if is_left_out and (other := self._other_card()) is not None:
            return other, "the program works with another GPU"
        if self.handled and cause == "out_of_memory":
            return works, "the program continues, since it handles this error"
        if cause in _NO_GPU and not self.features & _GPU_SHOWN:
            return works, "the program continues on the CPU"
        return None

    def _other_way(self) -> tuple[Match, str] | None:
        """The line showing how a program works without what failed: PyTorch takes another way than the CPU, or does what JAX does not."""
        cause, whose = self.suspect.cause, self.programs
        if whose <= _OF_TORCH and cause not in _AT_START | _IN_USE and (fell := self.first(_FELL_BACK)) is not None:
            return fell, "the program uses something else in its place, and works"
        shown = (match for match in self(_CARD) if programs((match,)) == _OF_TORCH)
        if cause == "cpu_only_build" and whose == _OF_JAX and (other := next(shown, None)) is not None:
            return other, "PyTorch works with the GPU, for which JAX is not needed"
        return None

    def _other_card(self) -> Match | None:
        """The line that shows a GPU at work by name of which the messages do not say that the build leaves it out."""
        left, at_work = "\n".join(match.shown for match in self.suspect.matches), {match.line for match in self(_AT_WORK)}
        return next((match for match in self(_CARD) if match.line in at_work and match.fields["card"] not in left), None)

    def not_needed(self) -> tuple[Match, str] | None:
        """The line showing that the GPU works, or that its absence is meant: by choice, without an NVIDIA GPU, in an image's build."""
        died = max((match.line for match in self.latest[_DIED]), default=-1)
        if died > self.failed.line:
            return None
        if (over := self._over()) is not None or died == self.failed.line:
            return over
        cause, features = self.suspect.cause, self.features
        is_driver, is_gpu_shown = cause in _NO_DRIVER, bool(features & _GPU_SHOWN)
        answer = self.first(_ANSWER)
        is_remote = self.latest[_REMOTE] or len({match.fields["host"] for match in self.latest[_PROMPT]}) > 1
        if answer is not None and is_driver and not self.programs and not features & _ELSEWHERE and not is_remote:
            return answer, "a program finds the GPU"
        built = self.first(_BUILT)
        is_of_build = is_driver or cause == "container_gpu_not_passed"
        is_compiled = any(re.search(_COMPILED, match.text) for match in self.suspect.every)
        is_compiled &= not self(_GENCODE)  # nvcc ran, for GPUs that were named to it
        is_listed = built is not None and any(match.line > built.line for match in self.latest[_SEEN])
        if built is not None and is_of_build and not is_compiled and (is_listed or not is_gpu_shown):
            return built, "the image is built, for which no GPU is needed"
        if built is not None and cause in _OF_PIP:
            return built, "the image is built without it, since its step allows for that"
        work = [match for name in (_RESULT, _WORK, _EPOCH, _CARRIED_ON, _SUCCEEDED) for match in self(name)]
        done = min(work, key=lambda match: match.line, default=None)
        if done is not None and self.programs and cause in _AT_START and not is_gpu_shown and self._is_chosen():
            return done, "the program continues on the CPU, as it was told to"
        # A container that starts without the toolkit is asked for a GPU by `--gpus`.
        is_absent = features & _OTHERS_CARD and "gpu-listed" not in features
        asked = {"docker-gpus"} if cause == "container_toolkit_missing" else set()
        if cause == "cuda_runtime_missing":
            done = done or self.first(_PACKAGED)
        if done is not None and is_absent and cause in _NO_GPU | {"container_toolkit_missing"} and not features & _GPU_SHOWN - asked:
            return done, "the program continues without an NVIDIA GPU"
        return None

    def _over(self) -> tuple[Match, str] | None:
        """The line showing that a failure of a machine or pod is over: booted since, or running."""
        suspect, is_mismatch = self.suspect, self.suspect.cause == _MISMATCH
        later = self.later(_BOOTED if is_mismatch else _POD)
        is_journal = is_mismatch and speaker(self.failed.text)  # else it may show a boot before the failure
        if is_journal and len(later) > 1 and "booted" in later[-2].fields and "booted" not in later[-1].fields:
            return later[-1], "the machine has booted, and loaded the module anew"
        holders = set(values_of(suspect.every, "holder"))
        is_given = holders == {"vfio-pci"} or (not holders and "vfio-given" in self.features)
        if is_given and all("NVRM: " in match.text for match in suspect.every):
            listed = next(iter(self.later(_SEEN)), None)
            return (listed, "another GPU is there than the one given to a virtual machine") if listed else None
        failures = [match for found in suspect.matches for match in self.latest[found.symptom.id]]
        runs = [next((match for match in later if "pod" in match.fields and match.fields["pod"] in lost.text), None) for lost in failures]
        is_of_pods = suspect.cause == "container_toolkit_missing" or self.failed.symptom.id == "driver-pod-failed"
        running = next(iter(runs), None) if is_of_pods and None not in runs else None
        return (running, "that pod runs") if running is not None else None

    def _is_chosen(self) -> bool:
        """True if the failed program was told to use the CPU: by its command, or by its text, shown or printed before."""
        first = min(match.line for match in self.suspect.every)
        starts = [match.fields for match in self.latest[_START] if match.line < first][-2:]
        return bool(starts) and ("other" not in starts[-1] or "code" in starts[0])

    def finds_gpu(self, shown: Match) -> bool:
        """True if a line shows at work the GPU that the same program had not found; another program's GPU does not count."""
        cause = self.suspect.cause
        is_skipped = cause in _CUDNN_UNFOUND and self.told != [] and all("dso_loader.cc" in match.text for match in self.told)
        if not (cause in _AT_START or is_skipped) or "started" not in shown.fields:
            return False
        return not self.programs or bool(self.programs & programs((shown,)))


def _cured(suspect: Suspect, failed: Match, latest: Mapping[str, Sequence[Match]]) -> Suspect | None:
    """The cause that a change in the log itself shows by removing it: the program works without the path, or in another release."""
    dropped = next((match for match in latest[_PATH_DROPPED] if match.line > failed.line), None)
    works = _OF_SMI if suspect.cause == _MISMATCH else _WORKS_NOW  # nvidia-smi does no more than list the GPU
    if dropped is not None and suspect.cause in _BY_PATH and _works_after(dropped, latest, works):
        cause, shown = "ld_path_shadowing", dropped
        text = f"the program works without LD_LIBRARY_PATH (line {shown.line}): a library in it was found first"
    elif suspect.cause == "unrecognised" and (other := _other_release(failed, latest)) is not None and _works_after(other[0], latest):
        cause, shown = "other_bug", other[0]
        text = f"the program fails with {other[1]} and works with {other[2]} (line {shown.line}): use that release"
    else:
        return None
    return replace(suspect, cause=cause, summary=text, weight=max(suspect.weight, _CURED), matches=(*suspect.matches, shown))


def cured(died: Match, latest: Mapping[str, Sequence[Match]]) -> list[Suspect]:
    """The same for an error of unknown cause, unless it is of names or arguments, which releases that do not pair have too."""
    is_of_names = re.match(rf"{OWN_FAULT}|ImportError: ", died.text) is not None
    found = None if is_of_names else _cured(Suspect(cause="unrecognised", weight=FINDING, matches=(died,)), died, latest)
    return [] if found is None else [found]


def _other_release(failed: Match, latest: Mapping[str, Sequence[Match]]) -> tuple[Match, str, str] | None:
    """The last line that installs, or shows, another release of a package than the one that failed, and both."""
    commands = [(match, dict(_PINNED.findall(str(match.fields["command"])))) for match in latest[_INSTALLS]]
    listed = (match for name in _LISTED for match in latest[name])
    commands += [(match, {str(match.fields["package"]): str(match.fields["version"])}) for match in listed]
    commands.sort(key=lambda pair: pair[0].line)
    before = {name: version for match, pins in commands if match.line <= failed.line for name, version in pins.items()}
    later = ((match, name, version) for match, pins in reversed(commands) if match.line > failed.line for name, version in pins.items())
    known = ((match, name, version) for match, name, version in later if name in before)
    changed = ((match, name, version) for match, name, version in known if before[name].split("+")[0] != version.split("+")[0])
    return next(((match, f"{name} {before[name]}", f"{name} {version}") for match, name, version in changed), None)


def _works_after(changed: Match, latest: Mapping[str, Sequence[Match]], names: Sequence[str] = _WORKS_NOW) -> bool:
    """True if what runs after a change works, and nothing fails any more."""
    after = {name: [match for match in found if match.line > changed.line] for name, found in latest.items()}
    return any(map(after.get, names)) and not any(after.get(name) for name in (_DIED, _BAD_END, "context-error-line"))


def _is_end(match: Match) -> bool:
    """True if a line only reports completion: after a logger's prefix, followed by nothing but a time."""
    before, rest = match.fields.get("before", ""), match.fields.get("rest", "")
    before = before[head(before) :] if before else ""
    before = re.sub(_LEVEL, "", before)
    last = re.split(r"[:\]|>]|- ", before)[-1]
    is_bare = not re.search(_PROSE, before) and not re.search(r"[A-Za-z]", re.sub(r"\bthe\b", "", last, flags=re.IGNORECASE))
    return is_bare and re.fullmatch(_DURATION, rest) is not None and not re.match(_NONE, rest)
