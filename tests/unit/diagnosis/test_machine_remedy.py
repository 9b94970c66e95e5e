"""Remedies for driver, GPU, containers and memory ask what decides, and leave alone what the log shows to be in order."""

from __future__ import annotations

from cudnn_resolve.diagnosis.model import Finding
from tests.written_logs import judged


def found(log: str) -> Finding:
    return judged(log).findings[0]


def commands(log: str) -> list[str]:
    return [remedy.command for remedy in found(log).remedy if remedy.command]


def every(log: str) -> str:
    """All steps of the first finding, as one text."""
    return "\n".join(f"{remedy.text}\n{remedy.command or ''}" for remedy in found(log).remedy)


def test_weak_evidence_leads_to_a_question_and_to_no_driver_or_reboot() -> None:
    log = "failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n"
    assert found(log).confidence < 0.6
    assert commands(log)[0] == "nvidia-smi"
    assert not [word for word in ("install", "reboot", "dkms") if word in every(log)]
