"""Computation on each GPU: the GPU itself, every cuDNN alone, every framework and companion, then timings."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from msgspec import Struct

from cudnn_resolve.host.background import gather
from cudnn_resolve.matrix.book import Book
from cudnn_resolve.validation.answers import ChildReport
from cudnn_resolve.validation.children import PAYLOADS, SLOWEST, ChildRunner, programs_on
from cudnn_resolve.validation.companions import InstalledCompanion, judge_on_gpu
from cudnn_resolve.validation.judge_numbers import judge_cases
from cudnn_resolve.validation.judge_speed import SpeedLimits, judge_card, judge_speed, speed_limits
from cudnn_resolve.validation.judge_usage import judge_usage
from cudnn_resolve.validation.model import Check, Subject, VisibleGpu
from cudnn_resolve.version import Capability


class GpuRun(Struct, frozen=True, kw_only=True):
    """Libraries, frameworks and companions that compute on every GPU."""

    runner: ChildRunner
    subjects: tuple[Subject, ...]
    libraries: tuple[str, ...]
    companions: tuple[InstalledCompanion, ...]
    book: Book
    gpu_count: int

    def run(self, gpu: VisibleGpu, loading_finished: Future[bool]) -> list[Check]:
        """Check one GPU; timings wait until no other child loads, and are left out if `loading_finished` gives False."""
        prefix = f"gpu{gpu.index}/" if self.gpu_count > 1 else ""
        report = self.runner.card(gpu)
        checks = [judge_card(f"{prefix}card", report, gpu.index)]
        if checks[0].status == "failed":
            return checks
        at_once = min(max(self.runner.at_once // self.gpu_count, 1), programs_on(report, self.runner.host.environ))
        subjects = [subject for subject in self.subjects if not subject.is_cpu_build and subject.module in PAYLOADS]
        checks += self._compute(subjects, gpu, prefix, at_once)
        if not loading_finished.result():
            return checks
        limits = self._limits(gpu, report)
        passed = {check.framework for check in checks if check.status == "passed"}
        sound = [subject for subject in subjects if subject.name in passed]
        timed = gather([partial(self._time, subject, gpu, prefix, limits) for subject in sound], at_once)
        return [*checks, *(check for group in timed for check in group)]

    def _limits(self, gpu: VisibleGpu, report: ChildReport) -> SpeedLimits:
        is_slice = "MIG" in (gpu.visible or "").upper() or " MIG " in (gpu.name or "")
        architecture = self.book.architecture(Capability.parse(gpu.compute_capability)) if gpu.compute_capability else None
        return speed_limits(report, architecture, self.book.peak(gpu.name) if gpu.name else None, is_slice=is_slice)

    def _compute(self, subjects: list[Subject], gpu: VisibleGpu, prefix: str, at_once: int) -> list[Check]:
        """Compute with everything: the slowest start first, the checks are ordered for the search of a fault."""
        tasks: list[tuple[bool, Callable[[], list[Check]]]] = [
            *((False, partial(self._compute_bare, path, gpu, prefix)) for path in self.libraries),
            *((subject.module in SLOWEST, partial(self._compute_with, subject, gpu, prefix)) for subject in subjects),
            *((one.companion.is_framework, partial(self._run_companion, one, gpu, prefix)) for one in self.companions),
        ]
        order = sorted(range(len(tasks)), key=lambda index: not tasks[index][0])
        done = dict(zip(order, gather([tasks[index][1] for index in order], at_once), strict=True))
        return [check for index in sorted(done) for check in done[index]]

    def _compute_bare(self, path: str, gpu: VisibleGpu, prefix: str) -> list[Check]:
        name = f"{prefix}cudnn/{library_label(path, self.libraries)}/"
        return list(judge_cases(name, None, self.runner.bare(path, gpu), gpu.index))

    def _compute_with(self, subject: Subject, gpu: VisibleGpu, prefix: str) -> list[Check]:
        name = f"{prefix}{subject.name}/"
        runs = self.runner.computed(subject, gpu)
        checks = list(judge_cases(name, subject.name, runs, gpu.index))
        if any(check.id == f"{name}start" for check in checks):
            return checks
        return [*checks, judge_usage(f"{name}cudnn-used", subject.name, runs, gpu.index)]

    def _run_companion(self, installed: InstalledCompanion, gpu: VisibleGpu, prefix: str) -> list[Check]:
        return list(judge_on_gpu(installed, self.runner.companion(installed, gpu), gpu, prefix))

    def _time(self, subject: Subject, gpu: VisibleGpu, prefix: str, limits: SpeedLimits) -> list[Check]:
        report = self.runner.timed(subject, gpu)
        if report is None:
            return []
        types = self.runner.types_timed(gpu)
        return list(judge_speed(f"{prefix}{subject.name}/speed", subject.name, report, limits, gpu.index, types))


def library_label(path: str, libraries: tuple[str, ...]) -> str:
    """Short name of a libcudnn, `libcudnn.so.9`; with a number if several share it."""
    name = path.rpartition("/")[2]
    same_name = [other for other in libraries if other.rpartition("/")[2] == name]
    return name if len(same_name) == 1 else f"{name}#{same_name.index(path) + 1}"
