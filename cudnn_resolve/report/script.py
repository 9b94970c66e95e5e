"""Render a plan as a bash script that performs it without this program.

The script verifies itself: its own text, each file by its hash, and finally the installed versions.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator

from cudnn_resolve.facts.cudnn_files import FOLDER
from cudnn_resolve.planning.model import AptRepository, Plan, Step
from cudnn_resolve.planning.preload import preload_files
from cudnn_resolve.report.pins import Group, comparison_program, folder_groups, groups
from cudnn_resolve.report.plan import header_comments
from cudnn_resolve.report.text import clean

_SUDO = 'SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi'
_BODY_MARK = "# --- the checksum above covers everything below this line ---"
_END = "CUDNN_RESOLVE_END"


def render(plan: Plan) -> str:
    """Return the script: `PYTHON` names the interpreter; steps that need root use sudo unless the user is root."""
    body = "\n".join(_body(plan)) + "\n"
    head = [
        "#!/usr/bin/env bash",
        *header_comments(plan),
        "set -euo pipefail",
        f"SUM={hashlib.sha256(body.encode('utf-8', 'backslashreplace')).hexdigest()}",
        f'if [ -z "${{EDITED:-}}" ] && grep -qxF "{_BODY_MARK}" "$0" 2>/dev/null; then',
        f'  if [ "$(sed \'1,/^{_BODY_MARK}$/d\' "$0" | sha256sum | cut -d \' \' -f 1)" != "$SUM" ]; then',
        '    echo "this script was modified; set EDITED=1 to run it anyway" >&2; exit 1',
        "  fi",
        "fi",
        _BODY_MARK,
    ]
    return "\n".join(head) + "\n" + body


def _body(plan: Plan) -> Iterator[str]:
    venv = _venv_command(plan)
    is_fetched = venv[:1] == ("uv",)  # uv downloads the Python of the new environment: no interpreter of this machine is involved
    python = (venv[0] if venv and not is_fetched else None) or plan.facts.python.path or "python3"
    yield f"PYTHON=${{PYTHON:-{shlex.quote(clean(python))}}}"
    if plan.stack and plan.stack.driver_min:
        yield from _driver_check(plan.stack.driver_min)
    if any(step.needs_root for step in plan.steps):
        yield _SUDO
    if any(step.kind == "pip" for step in plan.steps) and not is_fetched:
        yield from _python_check(plan)
    has_packages = False
    for step in plan.steps:
        if step.kind != "pip":
            yield from ("", f"# {clean(step.why)}", *_step(step, plan))
        elif not has_packages:  # one call of pip for each index, all of them at the first step of pip
            yield from _packages(plan)
            has_packages = True
    if not plan.steps:
        yield "echo 'nothing to do: the environment already matches the plan'"
    elif plan.pip:
        yield from ("", "# verify the result", f"\"$PYTHON\" -I - <<'{_END}'", *comparison_program(plan).splitlines(), _END)
        yield "echo 'done: the environment matches the plan'"


def _driver_check(minimum: str) -> list[str]:
    """Stop if the machine's driver is known and too old."""
    return [
        "if command -v nvidia-smi >/dev/null 2>&1; then",
        "  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)",
        f'  if [ -n "$driver" ] && [ "$(printf \'%s\\n\' {minimum} "$driver" | sort -V | head -n 1)" != {minimum} ]; then',
        f'    echo "the NVIDIA driver is $driver; this plan needs {minimum} or newer" >&2; exit 1',
        "  fi",
        "fi",
    ]


def _python_check(plan: Plan) -> Iterator[str]:
    """Stop if the interpreter has another minor version than the files of the plan."""
    minor = python_minor(plan)
    if minor is not None:
        yield 'found=$("$PYTHON" -c \'import sys; print("%d.%d" % sys.version_info[:2])\')'
        yield f'case "$found" in {minor}) ;; [0-9]*) echo "$PYTHON is Python $found; this plan is for {minor}" >&2; exit 1 ;; esac'


def _venv_command(plan: Plan) -> tuple[str, ...]:
    """The command that creates a new environment; empty if the plan is for an existing one."""
    return next((step.argv for step in plan.steps if step.kind == "venv" and step.argv), ())


def new_folder(plan: Plan) -> str | None:
    """The folder of the new environment; None if the plan is for an existing one."""
    return next(iter(_venv_command(plan)[-1:]), None)


def python_minor(plan: Plan) -> str | None:
    """The Python that the plan is for, such as `3.11`; None if unknown."""
    full = plan.facts.python.version or plan.python or ""
    found = re.match(r"\d+\.\d+", full)
    return found[0] if found else None


def _packages(plan: Plan) -> Iterator[str]:
    for group in groups(plan):
        pinned = "exact files, verified by hash" if group.hashed else "exact versions, hashes unknown"
        yield from ("", f"# {pinned}; --no-deps because the plan lists every dependency", *_install(group))


def _install(group: Group, options: str = "") -> Iterator[str]:
    if not group.hashed:
        yield f'"$PYTHON" -m pip install {options}{shlex.join((*group.options, *group.words))}'
        return
    yield from ("PINS=$(mktemp)", f"cat > \"$PINS\" <<'{_END}'")
    yield from group.lines
    yield _END
    yield f'"$PYTHON" -m pip install {options}{shlex.join(group.options)} -r "$PINS"'
    yield 'rm -f "$PINS"'


def _step(step: Step, plan: Plan) -> Iterator[str]:
    if step.kind == "venv" and step.argv is not None:
        yield from _venv(step.argv)
    elif step.argv is not None and (step.kind.startswith("pip") or step.kind == "kernel"):
        yield f'"$PYTHON" {clean(shlex.join(step.argv[1:]))}'
    elif step.argv is not None:
        yield f"{'$SUDO ' if step.needs_root else ''}{shlex.join(step.argv)}"
    elif step.kind in ("preload", "folder"):
        yield from _preload(plan)
    elif step.kind == "ldconfig":
        entry = next(entry for entry in plan.environment if entry.kind == "ldconfig")
        yield f"printf '%s\\n' {shlex.join(clean(entry.value).split(':'))} | $SUDO tee /etc/ld.so.conf.d/cudnn-resolve.conf >/dev/null"
        yield "$SUDO ldconfig"
    elif step.repository is not None:
        yield 'command -v gpg >/dev/null || { echo "gpg is needed to verify the repository key: apt-get install gnupg" >&2; exit 1; }'
        yield from repository_commands(step.repository, "$SUDO ")
        yield "$SUDO apt-get update"


def _venv(argv: tuple[str, ...]) -> Iterator[str]:
    """Create the new environment and continue with its interpreter."""
    folder = clean(shlex.quote(argv[-1]))
    python = f"{folder}/bin/python"
    fail = f"{{ echo {folder} exists and is not empty >&2; exit 1; }}"
    yield f'[ -x {python} ] || [ -z "$(ls -A {folder} 2>/dev/null)" ] || {fail}'
    if argv[0] == "uv":
        yield "command -v uv >/dev/null || python3 -m pip install uv"
        yield f"[ -x {python} ] || {clean(shlex.join(argv))}"
    else:
        yield f'"$PYTHON" {clean(shlex.join(argv[1:]))}'
    yield f"PYTHON={python}"


def _preload(plan: Plan) -> Iterator[str]:
    """Unpack the wheels of the separate folder, and write the two preload files into site-packages."""
    yield 'SITE=$("$PYTHON" -c \'import sysconfig; print(sysconfig.get_paths()["purelib"])\')'
    for group in folder_groups(plan):
        yield from _install(group, f'--upgrade --target "$SITE/{FOLDER}" ')
    for name, text in preload_files(plan.environment).items():
        yield from (f"cat > \"$SITE/{name}\" <<'{_END}'", text.rstrip("\n"), _END)


def repository_commands(repository: AptRepository, sudo: str = "") -> list[str]:
    """Shell commands that add an apt repository after comparing the fingerprint of its key.

    `gpg --show-keys` needs GnuPG 2.2.8; the options used here work from 2.1 on.
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
