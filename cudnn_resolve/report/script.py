"""A plan as a bash script that carries it out without this program.

It checks itself: its own text, each file by its hash, and at the end the versions that are installed.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.model import AptRepository, Plan, Step
from cudnn_resolve.planning.preload import preload_files
from cudnn_resolve.report.pins import Group, folder_groups, groups, looks
from cudnn_resolve.report.plan import machine_line
from cudnn_resolve.report.text import clean

_SUDO = 'SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi'
_MARK = "# --- what the sum above is of ---"
_END = "CUDNN_RESOLVE_END"


def render(plan: Plan) -> str:
    """The script: `PYTHON` names the interpreter, steps that need root go through sudo where the user is not root."""
    body = "\n".join(_body(plan)) + "\n"
    head = [
        "#!/usr/bin/env bash",
        f"# {clean(', '.join(plan.targets))}",
        f"# for {machine_line(plan)}",
        *(f"# {clean(one.message)}" for one in plan.warnings),
        "set -euo pipefail",
        f"SUM={hashlib.sha256(body.encode('utf-8', 'backslashreplace')).hexdigest()}",
        f'if [ -z "${{EDITED:-}}" ] && grep -qxF "{_MARK}" "$0" 2>/dev/null; then',
        f'  if [ "$(sed \'1,/^{_MARK}$/d\' "$0" | sha256sum | cut -d \' \' -f 1)" != "$SUM" ]; then',
        '    echo "this script is not as it was written; EDITED=1 runs it all the same" >&2; exit 1',
        "  fi",
        "fi",
        _MARK,
    ]
    return "\n".join(head) + "\n" + body


def _body(plan: Plan) -> Iterator[str]:
    made = _new(plan)  # by an interpreter that is here, unless uv brings it
    python = (made[0] if made and not _is_fetched(plan) else None) or plan.facts.python.path or "python3"
    yield f"PYTHON=${{PYTHON:-{shlex.quote(clean(python))}}}"
    if plan.stack and plan.stack.driver_min:
        yield from _driver_check(plan.stack.driver_min)
    if any(step.needs_root for step in plan.steps):
        yield _SUDO
    if any(step.kind == "pip" for step in plan.steps) and not _is_fetched(plan):
        yield from _python_check(plan)
    first = True
    for step in plan.steps:
        if step.kind == "pip":
            if first:  # one call of pip for each index, all of them here
                yield from _pip(plan)
            first = False
            continue
        yield from ("", f"# {clean(step.why)}", *_step(step, plan))
    if not plan.steps:
        yield "echo 'nothing to do: what is installed fits'"
    elif plan.pip:
        yield from ("", "# is everything as planned", f"\"$PYTHON\" -I - <<'{_END}'", *looks(plan).rstrip("\n").split("\n"), _END)
        yield "echo 'done: the environment is as planned'"


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


def _python_check(plan: Plan) -> Iterator[str]:
    """Lines that stop where the interpreter is of another minor: the files are for this one."""
    minor = python_minor(plan)
    if minor is not None:
        yield 'found=$("$PYTHON" -c \'import sys; print("%d.%d" % sys.version_info[:2])\')'
        yield f'case "$found" in {minor}) ;; [0-9]*) echo "$PYTHON is Python $found; this plan is for {minor}" >&2; exit 1 ;; esac'


def _new(plan: Plan) -> tuple[str, ...]:
    """The words that make a new environment; empty where the plan is for one that is there."""
    return next((step.argv for step in plan.steps if step.kind == "venv" and step.argv), ())


def _is_fetched(plan: Plan) -> bool:
    """True where uv brings the Python of a new environment."""
    return _new(plan)[:1] == ("uv",)


def new_folder(plan: Plan) -> str | None:
    """The folder of a new environment; None where the plan is for one that is there."""
    return next(iter(_new(plan)[-1:]), None)


def python_minor(plan: Plan) -> str | None:
    """`3.11`: the Python that the plan is for; None where it is not known."""
    full = plan.facts.python.version or plan.python or ""
    found = re.match(r"\d+\.\d+", full)
    return found[0] if found else None


def _pip(plan: Plan) -> Iterator[str]:
    for group in groups(plan):
        what, rest = ("exact files, by their hashes", "") if group.hashed else ("exact versions", "; no index was asked for hashes")
        yield from ("", f"# {what}, without their own dependencies: the plan holds them{rest}", *_install(group))


def _install(group: Group, where: str = "") -> Iterator[str]:
    if not group.hashed:
        yield f'"$PYTHON" -m pip install {where}{shlex.join((*group.options, *group.words))}'
        return
    yield from ("PINS=$(mktemp)", f"cat > \"$PINS\" <<'{_END}'")
    yield from group.lines
    yield _END
    yield f'"$PYTHON" -m pip install {where}{shlex.join(group.options)} -r "$PINS"'
    yield 'rm -f "$PINS"'


def _step(step: Step, plan: Plan) -> Iterator[str]:
    root = "$SUDO " if step.needs_root else ""
    if step.argv is not None:
        words = list(step.argv)
        if step.kind.startswith("pip") or step.kind == "kernel":
            yield f'"$PYTHON" {clean(shlex.join(words[1:]))}'
        elif step.kind == "venv":
            folder = clean(shlex.quote(words[-1]))
            made = f"{folder}/bin/python"
            full = f"{{ echo {folder} is there and is not empty >&2; exit 1; }}"
            yield f'[ -x {made} ] || [ -z "$(ls -A {folder} 2>/dev/null)" ] || {full}'
            if _is_fetched(plan):
                yield "command -v uv >/dev/null || python3 -m pip install uv"
                yield f"[ -x {made} ] || {clean(shlex.join(words))}"
            else:
                yield f'"$PYTHON" {clean(shlex.join(words[1:]))}'
            yield f"PYTHON={made}"
        else:
            yield f"{root}{shlex.join(words)}"
    elif step.kind in ("preload", "folder"):
        yield from _preload(plan)
    elif step.kind == "ldconfig":
        entry = next(one for one in plan.environment if one.kind == "ldconfig")
        yield f"printf '%s\\n' {shlex.join(clean(entry.value).split(':'))} | $SUDO tee /etc/ld.so.conf.d/cudnn-resolve.conf >/dev/null"
        yield "$SUDO ldconfig"
    elif step.repository is not None:
        yield from _repository(step.repository)


def _preload(plan: Plan) -> Iterator[str]:
    """Unpacks the wheels for the folder, and writes the two files of the preload into site-packages."""
    yield 'SITE=$("$PYTHON" -c \'import sysconfig; print(sysconfig.get_paths()["purelib"])\')'
    for group in folder_groups(plan):
        yield from _install(group, f'--upgrade --target "$SITE/{FOLDER}" ')
    for name, text in preload_files(plan.environment).items():
        yield from (f"cat > \"$SITE/{name}\" <<'{_END}'", text.rstrip("\n"), _END)


def repository_commands(repository: AptRepository, sudo: str = "") -> list[str]:
    """Return the shell commands that make a repository known by its key, whose fingerprint is compared first.

    `gpg --show-keys` needs GnuPG 2.2.8; what is used here works from 2.1 on.
    """
    keyring = "/usr/share/keyrings/cuda-archive-keyring.gpg"
    url, fingerprint = shlex.quote(clean(repository.key_url)), clean(repository.fingerprint)
    entry, place = shlex.quote(clean(repository.entry(keyring).strip())), f"/etc/apt/sources.list.d/{clean(repository.list_name)}"
    listed = 'gpg --batch --with-colons --import-options show-only --import "$KEY"'
    first = """awk -F: '$1 == "pub" {p = 1} $1 == "fpr" && p {print $10; p = 0}'"""
    return [
        "KEY=$(mktemp)",
        f'{{ curl -fsSLo "$KEY" {url} || wget -qO "$KEY" {url}; }}',
        f'[ "$({listed} | {first})" = {fingerprint} ]',
        f'gpg --batch --dearmor <"$KEY" | {sudo}tee -a {keyring} >/dev/null',
        f"echo {entry} | {sudo}tee {place} >/dev/null",
        'rm "$KEY"',
    ]


def _repository(repository: AptRepository) -> Iterator[str]:
    yield 'command -v gpg >/dev/null || { echo "gpg is needed to check the key of the repository: apt-get install gnupg" >&2; exit 1; }'
    yield from repository_commands(repository, "$SUDO ")
    yield "$SUDO apt-get update"
