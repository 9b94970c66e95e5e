"""The commands of the documentation's situations, typed one after the other as each page shows them.

Other programs are imitated: `srun` runs what it is given, `nvidia-smi` and `conda list` print what was recorded, and `pip install` of this
program installs nothing. What would fetch gigabytes is asked for the same without them: `apply` with `--dry-run`, and `lock` for `bundle`;
that both do what they say is held by tests of their own, on small wheels.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import ROOT

_MORE = ("apply", "check", "errors", "explorer", "fleet", "index", "locks", "notebooks", "plan", "rows", "start")
PAGES = sorted((ROOT / "docs").glob("situations/*.md")) + [ROOT / "docs" / f"{name}.md" for name in _MORE] + [ROOT / "README.md"]
_BEFORE = {
    "ci": "cudnn-resolve lock torch==2.6.0",
    "apply": "cudnn-resolve lock torch==2.6.0",
    "docs/fleet": "cudnn-resolve fleet lock torch==2.6.0 --from facts -o locks",
}
"""What a page says in words, or what a job has in its repository."""
ELSEWHERE = (
    "sh stack/start",
    "tar xf",
    "apply stack",
    "bundle --check",
    "--undo",
    "--history",
    "pip wheel",
    "uv pip sync",
    ".whl",
    "python3 -m venv .venv && .venv",
    "scripts/test",
)
"""Lines that go on with what only a bundle or an installation leaves; test_bundle.py, test_apply.py and .ci/run type those.

Blocks of the page of many machines that need hosts are typed by test_fleet_hosts.py, those of Slurm, Kubernetes and Ray by
test_jobs_and_containers.py.
"""
ASK_AN_INDEX = re.compile(r"^cudnn-resolve (fleet )?(lock|bundle)\b", re.MULTILINE)
PROGRAM = """#!/bin/sh
verb=$1; shift
case "$verb" in
    apply) set -- "$@" --dry-run --offline;;
    plan|why) set -- "$@" --offline;;
    fleet) [ "$1" != plan ] || set -- "$@" --offline;;
    bundle)
        verb=lock
        for word; do shift; case "$word" in *.tar) set -- "$@" pylock.bundle.toml;; *) set -- "$@" "$word";; esac; done;;
    matrix) [ "$1" != html ] || exit 0;;
esac
PYTHONPATH={root} exec {python} -m cudnn_resolve "$verb" "$@"
"""
OTHERS = {
    "srun": """out=/dev/stdout label=
while [ "${1#-}" != "$1" ]; do case "$1" in -p|-e) shift;; -o) out=$2; shift;; --label) label='0: ';; esac; shift; done
[ -n "$label" ] || exec "$@"
"$@" | sed "s/^/$label/" >"$out\"""",
    "nvidia-smi": f'[ "$1" = -q ] && exec cat {ROOT}/tests/outputs/nvidia-smi-q.txt; exec cat {ROOT}/tests/outputs/nvidia-smi.txt',
    "conda": """[ "$1" != list ] || echo '[{"name": "torch", "version": "2.6.0", "channel": "pypi"}]'""",
    "pip": 'case "$*" in *cudnn-resolve*) exit 0;; esac; exit 1',
}


def lines_of(page: Path) -> list[str]:
    """What a page shows to be typed, in blocks of a shell and in steps of a CI job."""
    text = page.read_text("utf-8")
    typed = [line for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL) for line in block.splitlines()]
    typed += [line.removeprefix("- run: ") for line in re.findall(r"^- run: .*$", text, re.MULTILINE)]
    before = _BEFORE.get(page.stem) or _BEFORE.get(f"{page.parent.name}/{page.stem}")
    place = next((number for number, line in enumerate(typed) if "fleet" in line), 0)
    typed = [*typed[:place], before, *typed[place:]] if before else typed
    return [line.partition("  #")[0].strip() for line in typed if line.strip() and not any(word in line for word in ELSEWHERE)]


def test_no_situation_is_left_out() -> None:
    said = {page.stem for page in PAGES if lines_of(page)}

    assert {"workstation", "conda", "docker", "ci", "cluster", "offline"} <= said
    assert {page.stem for page in PAGES} >= {"colab", "jetson"}  # cells and samples, which test_setup_cells.py and test_readme.py run


def case(page: Path) -> object:
    is_asking = ASK_AN_INDEX.search("\n".join(lines_of(page)))
    return pytest.param(page, marks=[pytest.mark.network] if is_asking else [], id=str(page.relative_to(ROOT).with_suffix("")))


@pytest.mark.slow
@pytest.mark.parametrize("page", [case(page) for page in PAGES if lines_of(page)])
def test_the_commands_of_a_page_work_where_it_shows_them(page: Path, tmp_path: Path) -> None:
    bin_, work = tmp_path / "bin", tmp_path / "work"
    bin_.mkdir()
    (work / "facts").mkdir(parents=True)
    for name, text in {**OTHERS, "cudnn-resolve": PROGRAM.format(root=shlex.quote(str(ROOT)), python=shlex.quote(sys.executable))}.items():
        (bin_ / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
        (bin_ / name).chmod(0o755)
    (work / ".venv").mkdir()
    (work / ".venv/bin").symlink_to(bin_)
    for source in (ROOT / "tests/lists").iterdir():
        shutil.copy(source, work)
    shutil.copy(ROOT / "tests/logs/written.txt", work / "train.log")
    for name, text in re.findall(r"<!-- file: (.*?) -->\n```toml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
        (work / name).parent.mkdir(parents=True)
        (work / name).write_text(text)
    if page.stem == "locks":
        (work / "requirements.txt").write_text("requests\n")  # those of the lists are what `check` is shown with: they break
    (work / "train.py").write_text("raise OSError('libcudnn.so.9: cannot open shared object file: No such file or directory')\n")
    script = "\n".join(
        f"echo {shlex.quote('$ ' + line)}\n{line}\ncode=$?; [ $code -le 1 ] || {{ echo exit code $code; exit 9; }}"
        for line in lines_of(page)
    )
    environ = {**os.environ, "PATH": f"{bin_}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(tmp_path / "cache"), "NO_COLOR": "1"}
    environ.pop("VIRTUAL_ENV", None)

    done = subprocess.run(["bash", "-c", script], cwd=work, capture_output=True, text=True, check=False, env=environ)

    assert done.returncode <= 1, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert "internal error" not in done.stderr
