"""A plan as a bash script that carries it out without this program."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from cudnn_resolve.plan.preload import MODULE, preload_pth, preload_source
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cudnn_resolve.plan.model import Environment, Plan, Step

_SUDO = 'SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi'


def render(plan: Plan) -> str:
    """The script: `PYTHON` names the interpreter, steps that need root go through sudo where the user is not root."""
    python = plan.facts.python.path or "python3"
    lines = [
        "#!/usr/bin/env bash",
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        *(f"# {clean(one.message)}" for one in plan.warnings),
        "set -euo pipefail",
        f"PYTHON=${{PYTHON:-{shlex.quote(clean(python))}}}",
    ]
    if plan.stack and plan.stack.driver_min:
        lines += _driver_check(plan.stack.driver_min)
    if any(step.needs_root for step in plan.steps):
        lines.append(_SUDO)
    for step in plan.steps:
        lines += ["", f"# {clean(step.why)}", *_step(step, plan)]
    if not plan.steps:
        lines.append("echo 'nothing to do: what is installed fits'")
    return "\n".join(lines) + "\n"


def _driver_check(minimum: str) -> list[str]:
    """Lines that stop where the machine's driver is known and too old."""
    return [
        "if command -v nvidia-smi >/dev/null 2>&1; then",
        "  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)",
        f'  if [ -n "$driver" ] && [ "$(printf \'%s\\n\' {minimum} "$driver" | sort -V | head -n 1)" != {minimum} ]; then',
        f'    echo "driver $driver is older than {minimum}, which this stack needs" >&2; exit 1',
        "  fi",
        "fi",
    ]


def _step(step: Step, plan: Plan) -> Iterator[str]:
    root = "$SUDO " if step.needs_root else ""
    if step.argv is not None:
        words = list(step.argv)
        if step.kind.startswith("pip"):
            yield f'"$PYTHON" {shlex.join(words[1:])}'
        elif step.kind == "venv":
            yield f'"$PYTHON" {shlex.join(words[1:])}'
            yield "PYTHON=.venv/bin/python"
        else:
            yield f"{root}{shlex.join(words)}"
    elif step.kind == "preload":
        yield from _preload(next(one for one in plan.environment if one.kind == "preload"))
    elif step.kind == "ldconfig":
        entry = next(one for one in plan.environment if one.kind == "ldconfig")
        paths = "\\n".join(clean(entry.value).split(":"))
        yield f"printf {shlex.quote(paths + chr(92) + 'n')} | $SUDO tee /etc/ld.so.conf.d/cudnn-resolve.conf >/dev/null"
        yield "$SUDO ldconfig"
    elif step.kind == "apt-repository":
        yield from _repository(step)


def _preload(entry: Environment) -> Iterator[str]:
    """Writes the two files of the preload into site-packages."""
    source = preload_source(tuple(entry.value.split()))
    yield 'SITE=$("$PYTHON" -c \'import sysconfig; print(sysconfig.get_paths()["purelib"])\')'
    yield f"cat > \"$SITE/{MODULE}.py\" <<'CUDNN_RESOLVE_END'"
    yield source.rstrip("\n")
    yield "CUDNN_RESOLVE_END"
    yield f"printf '%s\\n' {shlex.quote(preload_pth().strip())} > \"$SITE/{MODULE}.pth\""


def _repository(step: Step) -> Iterator[str]:
    """Installs the keyring package, which brings the repository's signing key and its entry."""
    yield "KEYRING=$(mktemp --suffix=.deb)"
    yield f"URL={shlex.quote(clean(step.url or ''))}"
    yield 'if command -v curl >/dev/null 2>&1; then curl -fsSLo "$KEYRING" "$URL"; else wget -qO "$KEYRING" "$URL"; fi'
    yield 'chmod 644 "$KEYRING"'
    yield '$SUDO dpkg -i "$KEYRING"'
    yield "$SUDO apt-get update"
