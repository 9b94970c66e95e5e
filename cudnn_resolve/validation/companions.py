"""Companions of frameworks (torchvision, triton, numba, …): which are installed, what each must prove, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, or_none
from cudnn_resolve.validation.answers import ChildReport, one_line
from cudnn_resolve.validation.judge_loading import SILENT, skipped_without_driver
from cudnn_resolve.validation.judge_numbers import NOT_REACHED, WRONG
from cudnn_resolve.validation.model import Check, VisibleGpu


class Companion(Struct, frozen=True, kw_only=True):
    """A package with native code of its own that is used with a framework."""

    names: tuple[str, ...]
    """Distributions that contain it; the first installed one counts."""
    module: str
    beside: str | None = None
    """Framework it belongs to: with a selection of frameworks it is tested only if that one is selected."""
    anywhere: tuple[str, ...] = ()
    """Jobs of payload_companion.py that need no GPU."""
    on_gpu: tuple[str, ...] = ()

    @property
    def is_framework(self) -> bool:
        """True for torch, whose import is judged with the frameworks."""
        return self.module == "torch"


COMPANIONS = (
    Companion(names=("torch",), module="torch", beside="torch", anywhere=("compile",), on_gpu=("compile",)),
    Companion(names=("torchvision",), module="torchvision", beside="torch", anywhere=("nms",), on_gpu=("nms",)),
    Companion(names=("torchaudio",), module="torchaudio", beside="torch", anywhere=("lfilter", "load"), on_gpu=("lfilter",)),
    Companion(names=("triton", "pytorch-triton"), module="triton", beside="torch", anywhere=("ptxas",), on_gpu=("vector-add",)),
    Companion(names=("xformers",), module="xformers.ops", beside="torch", anywhere=("xformers-extension",), on_gpu=("xformers-attention",)),
    Companion(names=("flash-attn",), module="flash_attn", beside="torch", anywhere=("flash-extension",), on_gpu=("flash-attention",)),
    Companion(names=("tensorrt", "tensorrt-cu13", "tensorrt-cu12", "tensorrt-cu11"), module="tensorrt", on_gpu=("builder",)),
    Companion(names=("numba",), module="numba", anywhere=("njit",), on_gpu=("kernel",)),
    Companion(names=("numba-cuda",), module="numba.cuda", on_gpu=("kernel",)),
)


class InstalledCompanion(Struct, frozen=True, kw_only=True):
    """An installed companion."""

    name: str
    version: str
    companion: Companion

    def jobs(self, gpu: VisibleGpu | None) -> tuple[str, ...]:
        """Jobs for a GPU, or for a machine without one."""
        return self.companion.on_gpu if gpu else self.companion.anywhere


class ProofAnswer(Struct, frozen=True):
    """Result of one job."""

    job: str
    got: list[float] | None = None
    wanted: list[float] = []
    within: float = 0.0
    """Tolerance, both absolute and relative to the reference."""
    seen: str | None = None
    untested: str | None = None
    error: str | None = None
    seconds: float | None = None


_UNPROVEN = "seen: it imports; not tested without a GPU"
_EXPECTED = {
    "ptxas": "the bundled assembler runs",
    "builder": "a builder is made",
    "xformers-extension": "its compiled extension loads",
    "flash-extension": "its compiled extension loads",
}
"""Expectation of jobs that give no numbers."""


def companions_of(facts: Facts, frameworks: Sequence[str] = ()) -> tuple[InstalledCompanion, ...]:
    """List the companions of an environment, or with names of frameworks only theirs."""
    packages = or_none(facts.packages.pip) or {}
    candidates = [companion for companion in COMPANIONS if not frameworks or companion.beside in frameworks]
    installed = [(companion, next((name for name in companion.names if name in packages), None)) for companion in candidates]
    return tuple(InstalledCompanion(name=name, version=packages[name], companion=companion) for companion, name in installed if name)


def judge_on_gpu(installed: InstalledCompanion, report: ChildReport, gpu: VisibleGpu, prefix: str) -> tuple[Check, ...]:
    """Judge the jobs of one companion on a GPU."""
    if report.last("imported", tuple[str, str, float]) is not None:
        return tuple(_judge_job(installed, job, report, gpu, prefix) for job in installed.jobs(gpu))
    if installed.companion.is_framework:
        return ()
    return (
        Check(
            id=f"{prefix}{installed.name}/start",
            framework=installed.name,
            status="failed",
            expected="it is imported",
            observed=report.failure or SILENT,
            gpu=gpu.index,
            output=report.output,
        ),
    )


def judge_companion(installed: InstalledCompanion, report: ChildReport, facts: Facts, *, has_gpu: bool) -> tuple[Check, ...]:
    """Judge one companion without a GPU: its import, each of its jobs, and what remains unproven."""
    imported = report.last("imported", tuple[str, str, float])
    first = Check(id=f"{installed.name}/import", framework=installed.name, status="passed", expected=installed.version)
    is_framework, module = installed.companion.is_framework, installed.companion.module
    if imported is None:
        why = report.failure or SILENT
        failed = replace(first, status="failed", observed=why, detail=f"import {module} fails", output=report.output)
        return () if is_framework else (skipped_without_driver(failed, why, facts),)
    checks = [_judge_job(installed, job, report) for job in installed.jobs(None)]
    if not is_framework:
        checks.insert(0, replace(first, observed=one_line(imported[1], 60) or installed.version, seconds=imported[2]))
    gpu_jobs = () if has_gpu else installed.companion.on_gpu
    unproven = [
        Check(id=_check_id(installed, job, is_gpu=True), framework=installed.name, status="skipped", observed=_UNPROVEN) for job in gpu_jobs
    ]
    return (*(skipped_without_driver(check, check.observed or "", facts) for check in checks), *unproven)


def not_tested(installed: InstalledCompanion) -> tuple[Check, ...]:
    """Skip a companion whose framework does not load: it would fail or hang in the same way."""
    if installed.companion.is_framework:
        return ()
    why = f"not tested: {installed.companion.beside} does not load"
    return (Check(id=f"{installed.name}/import", framework=installed.name, status="skipped", expected=installed.version, observed=why),)


def _check_id(installed: InstalledCompanion, job: str, *, is_gpu: bool) -> str:
    """`torchvision/nms`, `torchvision/nms/cuda`, `xformers/attention`."""
    short = job.rpartition("-")[2] if job.startswith(("xformers-", "flash-")) else job
    return f"{installed.name}/{short}" + ("/cuda" if is_gpu and job in installed.companion.anywhere else "")


def _judge_job(installed: InstalledCompanion, job: str, report: ChildReport, gpu: VisibleGpu | None = None, prefix: str = "") -> Check:
    """Judge one job: correct, wrong, untestable here, or fatal to the child."""
    proof = {answer.job: answer for answer in report.values("proof", ProofAnswer)}.get(job)
    check = Check(
        id=prefix + _check_id(installed, job, is_gpu=gpu is not None),
        framework=installed.name,
        status="failed",
        expected=_EXPECTED.get(job, "the numbers of the reference"),
        gpu=gpu.index if gpu else None,
        seconds=proof.seconds if proof else None,
    )
    if proof is None and report.step == job:
        observed = report.failure or "ended without an answer"
        return replace(check, observed=observed, detail="the process ended during this job", output=report.output)
    if proof is None:
        return replace(check, observed=NOT_REACHED, detail=report.ending or "the process ended without an answer")
    if proof.untested is not None:
        return replace(check, status="skipped", observed=f"not tested: {one_line(proof.untested)}")
    if proof.error is not None:
        return replace(check, observed=one_line(proof.error, 1000), output=report.output)
    if proof.got is None:
        return replace(check, status="passed" if proof.seen else "failed", observed=one_line(proof.seen or "no answer"))
    wrong = _wrong_numbers(proof)
    return replace(check, status="failed" if wrong else "passed", observed=wrong or f"equal to the reference ({len(proof.got)} compared)")


def _wrong_numbers(proof: ProofAnswer) -> str:
    """Describe how numbers differ from the reference; "" if they are correct. Anything but a number is wrong."""
    got, wanted = proof.got or [], proof.wanted
    if len(got) != len(wanted) or not wanted:
        return f"{WRONG}: {len(got)} instead of {len(wanted)}"
    pairs = enumerate(zip(got, wanted, strict=True))
    off = [index for index, (value, right) in pairs if not abs(value - right) <= proof.within * (1 + abs(right))]
    return f"{WRONG}: {len(off)} of {len(got)}; number {off[0]} is {got[off[0]]:g} instead of {wanted[off[0]]:g}" if off else ""
