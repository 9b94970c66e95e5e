"""Builds without code for a GPU that the log does not name: whether it is likely to be newer or older than the build."""

from __future__ import annotations

import re

from msgspec.structs import replace

from cudnn_resolve.diagnosis.model import Case, Suspect, Suspects

_DROP_OLD = r"onnxruntime|ctranslate2|ggml|llama|catboost|xgboost|lightgbm|rapids|cudf|cuml"
"""Programs that most people have as a package: its new releases have dropped old GPUs."""


def part_kernel_image(found: Suspects, case: Case) -> Suspects:
    """No code for a card that the log does not name: by what the build holds, else by the age of PyTorch that its words tell.

    The hint at TORCH_USE_CUDA_DSA came with 2.0, AcceleratorError with 2.8: between them the cards that builds did not know were mostly
    new ones (Hopper, Blackwell), from 2.8 on the usual build knows those and has dropped old ones. What somebody compiled himself has
    code for the cards of its day, and the usual reason is a newer one.
    """
    old, new = found.get("gpu_arch_too_old_for_build"), found.get("gpu_arch_too_new_for_build")
    if old and new and max(old.weight, new.weight) <= 66:
        if "build-lacks-new" in case.features:
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 6)
        elif "build-drops-old" in case.features:
            found["gpu_arch_too_old_for_build"] = replace(old, weight=max(old.weight, new.weight) + 6)
        elif "torch-2.8" not in case.features and ("torch-2" in case.features or not (_is_of_torch(old, case) or _drops_old(old))):
            found["gpu_arch_too_new_for_build"] = replace(new, weight=old.weight + 3)
    return found


def _is_of_torch(suspect: Suspect, case: Case) -> bool:
    """True where PyTorch prints the message, or the log shows it."""
    words = ("RuntimeError: CUDA error", "AcceleratorError", "torch", "enforce fail at")
    return any(name == "torch" for name, _ in case.context.frameworks) or any(
        word in match.text for match in (*suspect.matches, *case.frames) for word in words
    )


def _drops_old(suspect: Suspect) -> bool:
    return any(re.search(_DROP_OLD, match.text, re.IGNORECASE) for match in suspect.matches)
