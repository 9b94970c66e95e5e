#!/usr/bin/env python3
"""Break real environments with real wheels, diagnose their output with `cudnn-resolve doctor`, and apply its remedy.

usage: broken_environments.py [--jobs N] [--record FOLDER] [NAME ...]

Each environment is made in a temporary folder from the configured package index, its command is run, and `doctor` gets the log together
with the facts of that environment. The first finding must be the expected cause, with a line of evidence; then its commands are run as
printed, in order, until the failing command succeeds. Nothing needs a GPU; apt and dpkg run in a mount namespace of their own (root).
`--record` writes each log with its cause, as the tests read them. Takes minutes, a network and about 15 GB of disk.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from environments import find_python, uv_program

from cudnn_resolve.matrix.toml import decode

ROOT = Path(__file__).resolve().parents[1]
BIND_MOUNTS = "".join(
    f"mkdir -p $TMP/root{place} && mount --bind $TMP/root{place} {place} && "
    for place in ("/etc/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/cache/apt", "/var/log", "/usr/share/doc")
)
GPU = {"driver": {"version": "550.54.15", "cuda": "12.4"}, "gpus": [{"name": "NVIDIA L4", "compute_capability": "8.9"}]}
"""Facts of a machine that has a GPU."""
NEVER = re.compile(r"\b(reboot|rmmod|modprobe|systemctl|dkms|docker|nvidia-smi|ubuntu-drivers|nvidia-bug-report|nvidia-ctk)\b")
"""Commands that must not run on this machine."""
LOOKS = re.compile(r"^(cudnn-resolve (plan|matrix|detect)|apt-mark showhold|\S+ -m pip index)")
"""Commands that only print information."""


@dataclass
class Broken:
    """An environment: what is installed, the command that fails, and the expected cause."""

    name: str
    cause: str
    run: str
    """Shell command; $PY is the interpreter, $ENV its folder, $SITE its site-packages, $TMP a folder for anything else."""
    python: str = "3.11"
    install: Sequence[str] = ()
    """Lines of arguments for `uv pip install`."""
    prepare: str = ""
    """Shell command after the installation, or the name of one in the table `prepare`."""
    replaces: bool = False
    """True if the command is an installation that the remedy replaces by a better one, which must succeed instead."""
    then: str = ""
    """Regular expression of output that is accepted once the cause is gone, since there is no GPU."""
    apt: bool = False
    """True to run apt and dpkg in a mount namespace, with their own directories."""
    also: Sequence[str] = ()
    """Other accepted causes, depending on the machine: in a container the driver is missing because no GPU was passed through."""
    gone: bool = True
    """False if the failure persists on this machine whatever is done."""
    gpu: bool = False
    """True to diagnose it as on a machine with a GPU."""
    env: dict[str, str] = field(default_factory=dict)


def cases() -> tuple[list[Broken], dict[str, str]]:
    """Return the environments of the TOML file next to this one, and the preparations that they name."""
    table = decode(Path(__file__).with_suffix(".toml").read_text("utf-8"))
    rows: list[dict[str, Any]] = table["environment"]
    return [Broken(**row) for row in rows], table["prepare"]


def environment(case: Broken, folder: Path) -> dict[str, str]:
    """Return the environment variables of a case's commands."""
    env, tmp = folder / "env", folder / "tmp"
    own = {
        "PY": str(env / "bin/python"),
        "ENV": str(env),
        "SITE": str(env / f"lib/python{case.python}/site-packages"),
        "TMP": str(tmp),
        "UV": shlex.quote(uv_program()),
        "PATH": f"{env}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
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


def shell(command: str, env: dict[str, str], *, apt: bool = False) -> tuple[int, str]:
    """Run a shell command, answering yes to every question, and return its exit code and output."""
    words = ["bash", "-c", f"cd {shlex.quote(env['TMP'])}; {command}"]
    if apt:
        words[2] = f"{BIND_MOUNTS}{words[2]}"
        words = ["unshare", "-m", *words]
    answers = b"y\n" * 20
    done = subprocess.run(words, env=env, input=answers, capture_output=True, check=False, timeout=1200)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


def anonymized(text: str, env: dict[str, str]) -> str:
    """Return a log without the paths and indexes of this machine."""
    for name in ("SITE", "ENV", "TMP", "HOME"):
        text = text.replace(os.path.realpath(env[name]), f"/srv/{name.lower()}").replace(env[name], f"/srv/{name.lower()}")
    text = re.sub(r"/[^\s\"']{1,80}/\.pyenv/versions/[\d.]+/", "/usr/", text)
    text = text.replace(str(Path.home()), "/home/somebody")
    text = re.sub(r"(?m)^(?:Looking in (?:links|indexes)|WARNING: Location ).*\n", "", text)
    text = re.sub(r"https?://[^\s/]+", "https://index.example", text)
    text = re.sub(r"\[notice\].*\n?", "", text)
    return text[-20_000:]


def doctor(log: str, *options: str, library_path: str | None = None) -> list[dict[str, Any]]:
    """Return the findings of `doctor` for a log."""
    argv = [sys.executable, "-m", "cudnn_resolve", "doctor", "-", "--format", "json", *options]
    env = {**os.environ, "PYTHONPATH": str(ROOT)} | ({"LD_LIBRARY_PATH": library_path} if library_path is not None else {})
    done = subprocess.run(argv, input=log, env=env, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"doctor: exit {done.returncode}: {done.stderr[-400:]}")
    findings: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
    return findings


def findings_in(case: Broken, env: dict[str, str], log: str) -> list[dict[str, Any]]:
    """Return the findings for a log of an environment, together with its facts."""
    where = ["--python", env["PY"]]
    if case.gpu:
        detect = [sys.executable, "-m", "cudnn_resolve", "detect", "--format", "json", *where]
        done = subprocess.run(detect, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
        facts = Path(env["TMP"], "facts.json")
        facts.write_text(json.dumps(json.loads(done.stdout) | GPU), "utf-8")
        findings = doctor(log, "--facts", str(facts))
        for remedy in (remedy for finding in findings for remedy in finding["remedy"] if remedy["command"]):
            # A command for the facts of a file leaves it to the user to say where it is run.
            remedy["command"] = re.sub(r"^cudnn-resolve apply\b", rf"\g<0> --python {env['PY']}", remedy["command"])
        return findings
    return doctor(log, *where, library_path=env.get("LD_LIBRARY_PATH"))


def cure(case: Broken, env: dict[str, str], finding: dict[str, Any]) -> list[str] | None:
    """Run the commands of a finding, and of findings that replace it; return those that removed the failure, or None."""
    done: list[str] = []
    exports: list[str] = []
    for _ in range(6):  # one library after the other
        for remedy in finding["remedy"]:
            command = remedy["command"]
            if not command or command in done or not is_runnable(command):
                continue
            before = "; ".join(export for export in exports if export != command)
            code, log = shell(f"{before or ':'}; {command}" + ("" if case.replaces else f" ; {case.run}"), env, apt=case.apt)
            findings = [] if code == 0 and case.replaces else findings_in(case, env, log)
            accepted = code == 0 or bool(not case.replaces and case.then and re.search(case.then, log))
            left = not accepted or shows(case.cause, log)
            if left and (not findings or findings[0]["summary"] == finding["summary"] or findings[0]["severity"] == "info"):
                continue
            done.append(command)
            if not left:
                return done
            if re.search(r"\b(export|unset) ", command):
                exports.append(command)
            finding = findings[0]
            break
        else:
            return None
    return None


def is_runnable(command: str) -> bool:
    """False for commands that must not run here, only print information, or contain a placeholder in capitals."""
    bare = re.sub(r"\$\{?\w+|\S*/\S*|LD_LIBRARY_PATH", "", command)
    return not (NEVER.search(command) or LOOKS.match(command) or re.search(r"\b[A-Z]{5,}\b(?!=)", bare))


def shows(cause: str, log: str) -> bool:
    """True if the log alone shows the cause."""
    causes = {finding["cause"] for finding in doctor(log, "--no-facts") if finding["severity"] != "info"}
    families = ({"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch"}, {"cuda_runtime_missing", "lib_not_on_path"})
    return bool(causes & next((family for family in families if cause in family), {cause}))


@dataclass
class Outcome:
    """Result for one environment."""

    text: str
    broken: bool = False
    diagnosed: bool = False
    cured: bool | None = None
    """None if it cannot be cured here."""


def try_case(case: Broken, folder: Path, record: Path | None, prepared: dict[str, str]) -> Outcome:
    """Make an environment, break it, diagnose it and cure it."""
    env = environment(case, folder)
    (folder / "tmp").mkdir(parents=True)
    words = [uv_program(), "venv", "-q", "--seed", "--python", find_python(case.python), env["ENV"]]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        return Outcome(f"no environment: {made.stderr[-200:]}")
    for line in case.install:
        place = "" if "--target" in line else f"--python {env['PY']} "
        code, log = shell(f"$UV pip install -q {place}{quoted(line)}", env)
        if code:
            return Outcome(f"cannot be set up: {line}: {log[-300:]}")
    if case.prepare:
        code, log = shell(prepared.get(case.prepare, case.prepare), env, apt=case.apt)
        if code:
            return Outcome(f"cannot be prepared: {log[-300:]}")
    code, log = shell(case.run, env, apt=case.apt)
    if record is not None:
        record.mkdir(parents=True, exist_ok=True)
        (record / f"{case.name}.log").write_text(f"cause: {case.cause}\n{anonymized(log, env)}", "utf-8")
    return judge(case, env, log, findings_in(case, env, log))


def judge(case: Broken, env: dict[str, str], log: str, findings: list[dict[str, Any]]) -> Outcome:
    """Check the findings, then their remedy."""
    reported = [finding["cause"] for finding in findings if finding["severity"] != "info"]
    if case.cause == "harmless":
        return Outcome("quiet, as it should be" if not reported else f"WRONG: found {reported[0]}")
    if not findings or findings[0]["cause"] not in (case.cause, *case.also):
        found = findings[0]["cause"] if findings else "nothing"
        return Outcome(f"WRONG: found {found} instead of {case.cause}: {log[-300:]!r}", broken=True)
    if not any(evidence["line"] for evidence in findings[0]["evidence"]):
        return Outcome("WRONG: without a line of evidence", broken=True)
    if not findings[0]["remedy"]:
        return Outcome("WRONG: without a remedy", broken=True)
    if not case.gone:
        return Outcome("diagnosed; its remedy cannot be carried out here", broken=True, diagnosed=True)
    commands = cure(case, env, findings[0])
    if commands is None:
        tried = [remedy["command"] for remedy in findings[0]["remedy"]]
        return Outcome(f"WRONG: not cured by {tried}", broken=True, diagnosed=True, cured=False)
    return Outcome(f"cured: {' && '.join(commands)}", broken=True, diagnosed=True, cured=True)


def quoted(line: str) -> str:
    """Quote the words of a line for a shell, leaving variables to expand."""
    return " ".join(f'"{word}"' for word in line.split())


def run_case(case: Broken, record: Path | None, prepared: dict[str, str]) -> Outcome:
    """Try an environment in a temporary folder, and print the outcome."""
    folder = Path(tempfile.mkdtemp(prefix="broken-"))
    try:
        outcome = try_case(case, folder, record, prepared)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        outcome = Outcome(f"WRONG: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{case.name}: {outcome.text}", flush=True)
    return outcome


def main() -> int:
    """Return 1 if any environment went wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", type=Path, help="folder for the logs")
    parser.add_argument("--jobs", type=int, default=1, help="environments in parallel")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    found, prepared = cases()
    unknown = set(args.names) - {case.name for case in found}
    if unknown:
        parser.error(f"unknown environments: {', '.join(sorted(unknown))}; choose from {', '.join(case.name for case in found)}")
    chosen = [case for case in found if not args.names or case.name in args.names]
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(lambda case: run_case(case, args.record, prepared), chosen))
    broken = [outcome for outcome in outcomes if outcome.broken]
    diagnosed = [outcome.cured for outcome in broken if outcome.diagnosed]
    print(
        f"{len(broken)} broken, {len(diagnosed)} diagnosed, {diagnosed.count(True)} cured by the command of the finding, "
        f"{diagnosed.count(None)} cannot be cured here, {diagnosed.count(False)} not cured; "
        f"{len(outcomes) - len(broken)} harmless or not set up"
    )
    return 1 if any(not outcome.text.startswith(("cured", "diagnosed", "quiet")) for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
