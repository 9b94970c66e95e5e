#!/usr/bin/env python3
"""Breaks real environments with real wheels, has `cudnn-resolve doctor` look at what they print, and carries its remedy out.

usage: broken_environments.py [--keep FOLDER] [--record FOLDER] [NAME ...]

Each environment is made in a temporary folder from the configured package index, its command is run, and the log goes to `doctor`
together with the facts of that environment. The first finding must be the expected cause, with a line of evidence; then remedies are
carried out in their order until the command no longer prints what the cause is told by. Nothing needs a GPU. `--record` writes each log
with its cause, as the tests read them. Takes minutes, a network and about 15 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent.parent
DOCTOR = [sys.executable, "-m", "cudnn_resolve", "doctor"]
UV = [sys.executable, "-m", "uv"]


@dataclass
class Broken:
    """One environment: what is installed, what is run, what it must be found to be, and what cures it."""

    name: str
    cause: str
    run: str
    """Shell command; $PY is the interpreter, $ENV its folder, $SITE its site-packages, $TMP a folder for anything else."""
    python: str = "3.11"
    install: Sequence[str] = ()
    """Each a line of arguments for `uv pip install`."""
    prepare: str = ""
    """Shell command after that."""
    cure: str = ""
    """Where the remedy is not one command: what a person does who reads it. Must be backed by the text `cure_says`."""
    cure_says: str = ""
    also: Sequence[str] = ()
    """Causes that the facts of the machine may make of it: in a container the driver is missing because no GPU was passed on."""
    gone: bool = True
    """False where the failure cannot go away on a machine without a GPU."""
    env: dict[str, str] = field(default_factory=dict)


def cases() -> tuple[list[Broken], dict[str, str]]:
    """The environments of the table beside this file, and the longer preparations that they name."""
    with Path(__file__).with_suffix(".toml").open("rb") as file:
        table = tomllib.load(file)
    rows: list[dict[str, Any]] = table["environment"]
    return [Broken(**row) for row in rows], table["prepare"]


def environment(case: Broken, folder: Path) -> dict[str, str]:
    """The variables of a case's commands."""
    env, tmp = folder / "env", folder / "tmp"
    apt = {
        "Dir::State": f"{tmp}/state",
        "Dir::State::status": f"{tmp}/status",
        "Dir::Cache": f"{tmp}/cache",
        "Dir::Etc::sourcelist": f"{tmp}/sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::trusted": "/dev/null",
        "Dir::Etc::trustedparts": "/dev/null",
        "APT::Sandbox::User": "root",
    }
    own = {
        "PY": str(env / "bin/python"),
        "ENV": str(env),
        "SITE": str(env / f"lib/python{case.python}/site-packages"),
        "TMP": str(tmp),
        "UV": shlex.join(UV),
        "APT": " ".join(f"-o {name}={value}" for name, value in apt.items()),
        "DPKG": f"--root={tmp}/system",
        "PATH": f"{env}/bin:{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
    }
    kept = {name: os.environ[name] for name in os.environ if name.startswith(("PIP_", "UV_", "SSL_", "HTTP", "http", "NO_PROXY"))}
    places = (os.environ.get("PIP_CONFIG_FILE"), str(Path.home() / ".config/pip/pip.conf"), "/etc/pip.conf")
    configured = next((place for place in places if place and Path(place).exists()), None)
    config = {"PIP_CONFIG_FILE": configured} if configured else {}
    cache = os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv"))
    own = {**kept, **config, **own, "UV_PYTHON_DOWNLOADS": "never", "UV_CACHE_DIR": cache}
    for name, value in case.env.items():
        own[name] = value.replace("$SITE", own["SITE"]).replace("$TMP", own["TMP"])
    return own


def python_of(version: str) -> str:
    """An interpreter of that version."""
    for place in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return str(place)
    found = subprocess.run([*UV, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
    return found.stdout.strip() or version


def shell(command: str, env: dict[str, str]) -> tuple[int, str]:
    """Exit status and what was printed."""
    done = subprocess.run(["bash", "-c", command], env=env, capture_output=True, check=False, timeout=900)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def levelled(text: str, env: dict[str, str]) -> str:
    """A log without the places of this machine."""
    for name in ("SITE", "ENV", "TMP", "HOME"):
        text = text.replace(os.path.realpath(env[name]), f"/srv/{name.lower()}").replace(env[name], f"/srv/{name.lower()}")
    text = re.sub(r"/[^\s\"']{1,80}/\.pyenv/versions/[\d.]+/", "/usr/", text)
    text = text.replace(str(Path.home()), "/home/somebody")
    text = re.sub(r"(?m)^(?:Looking in (?:links|indexes)|WARNING: Location ).*\n", "", text)
    text = re.sub(r"https?://[^\s/]+", "https://index.example", text)
    text = re.sub(r"\[notice\].*\n?", "", text)
    return text[-20_000:]


def doctor(log: str, env: dict[str, str]) -> list[dict[str, Any]]:
    """The findings."""
    words = [*DOCTOR, "-", "--format", "json", "--python", env["PY"]]
    clean = {**os.environ, "PYTHONPATH": str(HERE)}
    clean.update({name: env[name] for name in ("LD_LIBRARY_PATH",) if name in env})
    done = subprocess.run(words, input=log, env=clean, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"doctor: exit {done.returncode}: {done.stderr[-400:]}")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def cured(case: Broken, env: dict[str, str], finding: dict[str, Any]) -> str | None:
    """How the failure went away; None where it did not."""
    remedies = finding["remedy"]
    if case.cure:
        if not any(case.cure_says in f"{one['text']} {one['command']}" for one in remedies):
            return None
        if "--dry-run" in case.cure or case.run.startswith(("apt-get", "dpkg", "$PY -m pip install")):
            return "by hand" if shell(case.cure, env)[0] == 0 else None
        log = shell(f"{case.cure}; {case.run}", env)[1]
        return "by hand" if not told(case.cause, log) else None
    done: list[str] = []
    for _ in range(5):  # one library after the other
        step = _step(case, env, finding, done)
        if step is None:
            return None
        command, log, left = step
        done.append(command)
        if not left:
            return "; ".join(done)
        finding = next(one for one in doctor(log, env) if one["severity"] != "info")
    return None


def _step(case: Broken, env: dict[str, str], finding: dict[str, Any], done: list[str]) -> tuple[str, str, bool] | None:
    """The first remedy after which the failure is gone or another one: its command, what is printed then, whether anything is left."""
    before = finding["summary"]
    for one in finding["remedy"]:
        command = one["command"]
        if not command or command.startswith(("cudnn-resolve", "sudo")) or command in done:
            continue  # what `apply` does is tested where it is
        words = command.replace("python -m pip", "$PY -m pip") if command.startswith("python ") else command
        log = shell("; ".join([*done, words, case.run]), env)[1]
        left = told(case.cause, log)
        if not left or doctor(log, env)[0]["summary"] != before:
            return words, log, left
    return None


def told(cause: str, log: str) -> bool:
    """True where the log tells of the cause."""
    words = [*DOCTOR, "-", "--format", "json", "--no-facts"]
    clean = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run(words, input=log, env=clean, capture_output=True, text=True, check=False, timeout=300)
    causes = {one["cause"] for one in json.loads(done.stdout)["findings"] if one["severity"] != "info"}
    family = {"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch"}
    return bool(causes & (family if cause in family else {cause}))


def work(case: Broken, folder: Path, record: Path | None, prepared: dict[str, str]) -> str:  # noqa: C901
    """A line that says how it went; it begins with `ok` where all is well."""
    env = environment(case, folder)
    (folder / "tmp").mkdir(parents=True)
    env["PY310"] = python_of("3.10")
    words = [*UV, "venv", "-q", "--seed", "--python", python_of(case.python), env["ENV"]]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no environment: {made.stderr[-200:]}"
    for line in case.install:
        place = "" if "--target" in line else f"--python {env['PY']} "
        code, log = shell(f"$UV pip install -q {place}{quoted(line)}", env)
        if code:
            return f"cannot be set up: {line}: {log[-300:]}"
    if case.prepare:
        code, log = shell(prepared.get(case.prepare, case.prepare), env)
        if code:
            return f"cannot be prepared: {log[-300:]}"
    _, log = shell(case.run, env)
    if record is not None:
        (record / f"{case.name}.log").write_text(f"cause: {case.cause}\n{levelled(log, env)}", "utf-8")
    findings = doctor(log, env)
    loud = [one for one in findings if one["severity"] != "info"]
    if case.cause == "harmless":
        return "ok quiet" if not loud else f"said {loud[0]['cause']}"
    if not findings or findings[0]["cause"] not in (case.cause, *case.also):
        return f"said {findings[0]['cause'] if findings else 'nothing'} instead of {case.cause}: {log[-300:]!r}"
    if not any(one["line"] for one in findings[0]["evidence"]):
        return "without a line of evidence"
    if not findings[0]["remedy"]:
        return "without a remedy"
    if not case.gone:
        return "ok (its remedy needs a GPU or a driver)"
    how = cured(case, env, findings[0])
    return f"ok, cured: {how}" if how else f"not cured by {[one['command'] for one in findings[0]['remedy']]}"


def quoted(line: str) -> str:
    """A line of requirements for a shell; variables stay."""
    return " ".join(f'"{word}"' for word in line.split())


def main() -> int:
    """The number of environments that went wrong, 1 at most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", type=Path, help="write the logs there")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    bad = 0
    found, prepared = cases()
    for case in found:
        if args.names and case.name not in args.names:
            continue
        folder = Path(tempfile.mkdtemp(prefix="broken-"))
        try:
            told_ = work(case, folder, args.record, prepared)
        except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            told_ = f"{type(error).__name__}: {error}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        bad += not told_.startswith("ok")
        print(f"{case.name}: {told_}", flush=True)
    print(f"{bad} wrong")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
