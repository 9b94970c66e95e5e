"""Fields of remedies for two packages that do not pair: the branch of bindings, or a range of releases for conda."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match

_THERE = re.compile(r"\bbut (?:cuDNN )?([4-7])(?:\.\d| is )")
"""A cuDNN that has a branch of Torch 7's bindings, in the sentence of a finding."""


def bindings_of(summary: str) -> dict[str, str]:
    """Field for the branch of Torch 7's bindings that is for the cuDNN which a finding says is there."""
    there = _THERE.search(summary)
    return {"bindings": f"R{there[1]}"} if there is not None else {}


def importer_values(importer: str | None, failed: Sequence[Match], every: Iterable[Match], python: str | None) -> dict[str, str]:
    """Fields for a package that asks for a missing name; with ranges for it, and for the package without the name, if conda lists them.

    The installed JAX stays, for the sake of its jaxlib: the command asks `python` for its release (None: the shell cannot do that).
    """
    is_of_jax = bool(failed) and failed[0].symptom.id == "jax-name-removed"
    if importer is None or (is_of_jax and python is None):
        return {}
    rows = (match.fields for match in every if "conda_name" in match.fields)
    listed = {str(fields["conda_name"]): str(fields["conda_release"]).split(".") for fields in rows}
    with_jax = f" \"jax==$({python} -c 'import jax; print(jax.__version__)')\"" if is_of_jax else ""
    values, own = {"importer": importer, "importer_with": with_jax}, listed.get(importer, [])
    if len(own) > 1 and own[1].isdigit():
        values["importer_conda"] = shlex.quote(f"{importer}>{'.'.join(own)},<{own[0]}.{int(own[1]) + 1}")
    asked = next((str(value).partition(".")[0] for name, value in failed[0].fields.items() if name.startswith("module")), "")
    owner = listed.get(asked, ["0"])
    values["owner_conda"] = f"the last {asked or 'package'} that it fits" if owner[0] in ("0", "1") else shlex.quote(f"{asked}<{owner[0]}")
    return values
