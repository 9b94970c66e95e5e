"""Companions of frameworks (torchvision, triton, numba, …): which are there, what each must prove, and the verdict on what it told."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from cudnn_resolve.facts.model import Facts, Unknown
from cudnn_resolve.validation.answers import Told, one_line
from cudnn_resolve.validation.judge_loading import unless_driver
from cudnn_resolve.validation.judge_numbers import NOT_REACHED, WRONG
from cudnn_resolve.validation.model import Check, VisibleGpu


class Companion(Struct, frozen=True, kw_only=True):
    """A package that has code of its own beside a framework."""

    names: tuple[str, ...]
    """Distributions that bring it, the first that is installed counts."""
    module: str
    beside: str | None = None
    """The framework without which it is not tested where frameworks are named."""
    anywhere: tuple[str, ...] = ()
    """Jobs of payload_companion.py that need no GPU."""
    on_gpu: tuple[str, ...] = ()

    @property
    def is_framework(self) -> bool:
        """True for torch itself, whose import is judged with the frameworks."""
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


class Found(Struct, frozen=True, kw_only=True):
    """A companion that is installed."""

    name: str
    version: str
    companion: Companion

    def jobs(self, gpu: VisibleGpu | None) -> tuple[str, ...]:
        """What it must prove on a GPU, or on any machine."""
        return self.companion.on_gpu if gpu else self.companion.anywhere


class ProofAnswer(Struct, frozen=True):
    """What came out of one job."""

    job: str
    got: list[float] | None = None
    wanted: list[float] = []
    within: float = 0.0
    """How far a number may be off, absolutely and as a share of its reference."""
    seen: str | None = None
    untested: str | None = None
    error: str | None = None
    seconds: float | None = None


_SILENT = "ended without a word"
_UNPROVEN = "seen: it imports; not tested without a GPU"


def companions_of(facts: Facts, frameworks: Sequence[str] = ()) -> tuple[Found, ...]:
    """List the companions of an environment; with names of frameworks only what goes with these."""
    packages = {} if isinstance(facts.packages.pip, Unknown) else facts.packages.pip
    asked = [one for one in COMPANIONS if not frameworks or one.beside in frameworks]
    first = [(one, next((name for name in one.names if name in packages), None)) for one in asked]
    return tuple(Found(name=name, version=packages[name], companion=one) for one, name in first if name is not None)


def judge_on_gpu(found: Found, told: Told, gpu: VisibleGpu, prefix: str) -> tuple[Check, ...]:
    """Judge what one companion proved on a GPU."""
    if told.last("imported", tuple[str, str, float]) is None:
        if found.companion.is_framework:
            return ()
        blank = Check(id=f"{prefix}{found.name}/start", framework=found.name, status="failed", expected="it is imported", gpu=gpu.index)
        return (replace(blank, observed=told.failure or _SILENT, output=told.output),)
    return tuple(_judged(found, job, told, gpu, prefix) for job in found.jobs(gpu))


def judge_companion(found: Found, told: Told, facts: Facts, *, has_gpu: bool) -> tuple[Check, ...]:
    """Judge what one companion told without a GPU: its import, then each of its jobs; and say what remains unproven."""
    imported = told.last("imported", tuple[str, str, float])
    first = Check(id=f"{found.name}/import", framework=found.name, status="passed", expected=found.version)
    if imported is None:
        why, detail = told.failure or _SILENT, f"import {found.companion.module} fails"
        broken = replace(first, status="failed", observed=why, detail=detail, output=told.output)
        return () if found.companion.is_framework else (unless_driver(broken, why, facts),)
    checks = [_judged(found, job, told) for job in found.jobs(None)]
    if not found.companion.is_framework:
        checks.insert(0, replace(first, observed=one_line(imported[1], 60) or found.version, seconds=imported[2]))
    left = () if has_gpu else found.companion.on_gpu
    unproven = [replace(first, id=_id(found, job, is_gpu=True), status="skipped", expected=None, observed=_UNPROVEN) for job in left]
    return (*(unless_driver(check, check.observed or "", facts) for check in checks), *unproven)


def untried(found: Found) -> tuple[Check, ...]:
    """Say that a companion was not tried because its framework does not load: it would fail, or hang, as that does."""
    if found.companion.is_framework:
        return ()
    why = f"not tested: {found.companion.beside} does not load"
    return (Check(id=f"{found.name}/import", framework=found.name, status="skipped", expected=found.version, observed=why),)


def _id(found: Found, job: str, *, is_gpu: bool) -> str:
    """`torchvision/nms`, `torchvision/nms/cuda`, `xformers/attention`."""
    short = job.rpartition("-")[2] if job.startswith(("xformers-", "flash-")) else job
    return f"{found.name}/{short}" + ("/cuda" if is_gpu and job in found.companion.anywhere else "")


def _judged(found: Found, job: str, told: Told, gpu: VisibleGpu | None = None, prefix: str = "") -> Check:
    """Judge one job: right, wrong, not to be tested here, or the end of the child."""
    proof = {one.job: one for one in told.every("proof", ProofAnswer)}.get(job)
    id_ = prefix + _id(found, job, is_gpu=gpu is not None)
    check = Check(id=id_, framework=found.name, status="failed", expected=_EXPECTED.get(job, "the numbers of the reference"))
    check = replace(check, gpu=gpu.index if gpu else None, seconds=proof.seconds if proof else None)
    if proof is None and told.step == job:
        return replace(check, observed=told.failure or "ended without an answer", detail="the process ended at this", output=told.output)
    if proof is None:
        return replace(check, observed=NOT_REACHED, detail=told.ending or "the process ended without an answer")
    if proof.untested is not None:
        return replace(check, status="skipped", observed=f"not tested: {one_line(proof.untested)}")
    if proof.error is not None:
        return replace(check, observed=one_line(proof.error, 1000), output=told.output)
    if proof.got is None:
        return replace(check, status="passed" if proof.seen else "failed", observed=one_line(proof.seen or "nothing was told"))
    wrong = _wrong(proof)
    return replace(check, status="failed" if wrong else "passed", observed=wrong or f"equal to the reference ({len(proof.got)} compared)")


_EXPECTED = {
    "ptxas": "the assembler that it brings runs",
    "builder": "a builder is made",
    "xformers-extension": "what it has compiled loads",
    "flash-extension": "what it has compiled loads",
}
"""What is asked of jobs that give no numbers."""


def _wrong(proof: ProofAnswer) -> str:
    """Say how numbers differ from the reference; "" where they are right. What is no number is wrong."""
    got, wanted = proof.got or [], proof.wanted
    if len(got) != len(wanted) or not wanted:
        return f"{WRONG}: {len(got)} instead of {len(wanted)}"
    off = [at for at, (one, two) in enumerate(zip(got, wanted, strict=True)) if not abs(one - two) <= proof.within * (1 + abs(two))]
    return f"{WRONG}: {len(off)} of {len(got)}; number {off[0]} is {got[off[0]]:g} instead of {wanted[off[0]]:g}" if off else ""
