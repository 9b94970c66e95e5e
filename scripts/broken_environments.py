#!/usr/bin/env python3
"""Breaks real environments with real wheels, has `cudnn-resolve doctor` look at what they print, and carries its remedy out.

usage: broken_environments.py [--jobs N] [--record FOLDER] [NAME ...]

Each environment is made in a temporary folder from the configured package index, its command is run, and the log goes to `doctor`
together with the facts of that environment. The first finding must be the expected cause, with a line of evidence; then the commands of
that finding are carried out as they are printed, in their order, until the command succeeds. Nothing needs a GPU; what apt and dpkg do
happens in a mount namespace of its own (root). `--record` writes each log with its cause, as the tests read them. Takes minutes, a
network and about 15 GB of disk.
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

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent.parent
DOCTOR = [sys.executable, "-m", "cudnn_resolve", "doctor"]
UV = [sys.executable, "-m", "uv"]
BOUND = "".join(
    f"mkdir -p $TMP/root{place} && mount --bind $TMP/root{place} {place} && "
    for place in ("/etc/apt", "/var/lib/apt", "/var/lib/dpkg", "/var/cache/apt", "/var/log", "/usr/share/doc")
)
NEVER = re.compile(r"\b(reboot|rmmod|modprobe|systemctl|dkms|docker|nvidia-smi|ubuntu-drivers|nvidia-bug-report|nvidia-ctk)\b")
"""What is not carried out on the machine that this runs on."""
LOOKS = re.compile(r"^(cudnn-resolve (plan|matrix|detect)|apt-mark showhold|\S+ -m pip index)")
"""Commands that only show something."""


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
    replaces: bool = False
    """True where the command is an installation for which the remedy has a better one: that one must succeed in its place."""
    then: str = ""
    """What the command may say once its cause is gone, since there is no GPU here: a regular expression."""
    apt: bool = False
    """True where apt and dpkg are at work: in a mount namespace, with directories of their own."""
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
    own = {
        "PY": str(env / "bin/python"),
        "ENV": str(env),
        "SITE": str(env / f"lib/python{case.python}/site-packages"),
        "TMP": str(tmp),
        "UV": shlex.join(UV),
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


def python_of(version: str) -> str:
    """An interpreter of that version."""
    for place in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return str(place)
    found = subprocess.run([*UV, "python", "find", "--no-project", version], capture_output=True, text=True, check=False)
    return found.stdout.strip() or version


def shell(command: str, env: dict[str, str], *, apt: bool = False) -> tuple[int, str]:
    """Exit status and what was printed; whatever is asked is answered with yes."""
    words = ["bash", "-c", f"cd {shlex.quote(env['TMP'])}; {command}"]
    if apt:
        words[2] = f"{BOUND}{words[2]}"
        words = ["unshare", "-m", *words]
    answers = b"y\n" * 20
    done = subprocess.run(words, env=env, input=answers, capture_output=True, check=False, timeout=1200)
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


def cured(case: Broken, env: dict[str, str], finding: dict[str, Any]) -> list[str] | None:
    """The finding's own commands after which the failure is gone; None where it is not. A finding that takes its place is followed, too."""
    done: list[str] = []
    kept: list[str] = []
    for _ in range(6):  # one library after the other
        for one in finding["remedy"]:
            command = one["command"]
            if (
                not command
                or command in done
                or NEVER.search(command)
                or LOOKS.match(command)
                or re.search(r"\b[A-Z]{5,}\b(?!=)", placeless(command))
            ):
                continue
            lasting = "; ".join(each for each in kept if each != command)
            code, log = shell(f"{lasting or ':'}; {command}" + ("" if case.replaces else f" ; {case.run}"), env, apt=case.apt)
            findings = [] if code == 0 and case.replaces else doctor(log, env)
            left = bool(case.replaces and code) or told(case.cause, log) or (code != 0 and not (case.then and re.search(case.then, log)))
            if left and (not findings or findings[0]["summary"] == finding["summary"] or findings[0]["severity"] == "info"):
                continue
            done.append(command)
            if not left:
                return done
            if re.search(r"\b(export|unset) ", command):
                kept.append(command)
            finding = findings[0]
            break
        else:
            return None
    return None


def placeless(command: str) -> str:
    """A command without paths and variables: what is left in capitals is a place that a reader must fill."""
    return re.sub(r"\$\{?\w+|\S*/\S*|LD_LIBRARY_PATH", "", command)


def told(cause: str, log: str) -> bool:
    """True where the log tells of the cause."""
    words = [*DOCTOR, "-", "--format", "json", "--no-facts"]
    clean = {**os.environ, "PYTHONPATH": str(HERE)}
    done = subprocess.run(words, input=log, env=clean, capture_output=True, text=True, check=False, timeout=300)
    causes = {one["cause"] for one in json.loads(done.stdout)["findings"] if one["severity"] != "info"}
    families = ({"cudnn_missing", "lib_not_on_path", "cudnn_major_mismatch"}, {"cuda_runtime_missing", "lib_not_on_path"})
    return bool(causes & next((one for one in families if cause in one), {cause}))


@dataclass
class Outcome:
    """How an environment went."""

    text: str
    broken: bool = False
    diagnosed: bool = False
    cured: bool | None = None
    """None where it cannot be cured here."""


def work(case: Broken, folder: Path, record: Path | None, prepared: dict[str, str]) -> Outcome:
    """Make it, break it, have it looked at, cure it."""
    env = environment(case, folder)
    (folder / "tmp").mkdir(parents=True)
    words = [*UV, "venv", "-q", "--seed", "--python", python_of(case.python), env["ENV"]]
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
        (record / f"{case.name}.log").write_text(f"cause: {case.cause}\n{levelled(log, env)}", "utf-8")
    return judged(case, env, log, doctor(log, env))


def judged(case: Broken, env: dict[str, str], log: str, findings: list[dict[str, Any]]) -> Outcome:
    """Whether the findings are right, and whether what they say helps."""
    loud = [one for one in findings if one["severity"] != "info"]
    if case.cause == "harmless":
        return Outcome("quiet, as it should be" if not loud else f"WRONG: said {loud[0]['cause']}")
    if not findings or findings[0]["cause"] not in (case.cause, *case.also):
        said = findings[0]["cause"] if findings else "nothing"
        return Outcome(f"WRONG: said {said} instead of {case.cause}: {log[-300:]!r}", broken=True)
    if not any(one["line"] for one in findings[0]["evidence"]):
        return Outcome("WRONG: without a line of evidence", broken=True)
    if not findings[0]["remedy"]:
        return Outcome("WRONG: without a remedy", broken=True)
    if not case.gone:
        return Outcome("diagnosed; its remedy needs a GPU or a driver", broken=True, diagnosed=True)
    how = cured(case, env, findings[0])
    if how is None:
        commands = [one["command"] for one in findings[0]["remedy"]]
        return Outcome(f"WRONG: not cured by {commands}", broken=True, diagnosed=True, cured=False)
    return Outcome(f"cured: {' && '.join(how)}", broken=True, diagnosed=True, cured=True)


def quoted(line: str) -> str:
    """A line of requirements for a shell; variables stay."""
    return " ".join(f'"{word}"' for word in line.split())


def tried(case: Broken, record: Path | None, prepared: dict[str, str]) -> Outcome:
    """How an environment went, printed; nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="broken-"))
    try:
        outcome = work(case, folder, record, prepared)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        outcome = Outcome(f"WRONG: {type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{case.name}: {outcome.text}", flush=True)
    return outcome


def main() -> int:
    """The number of environments that went wrong, 1 at most."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--record", type=Path, help="write the logs there")
    parser.add_argument("--jobs", type=int, default=1, help="environments at a time")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    found, prepared = cases()
    unknown = set(args.names) - {case.name for case in found}
    if unknown:
        parser.error(f"no environment is named {', '.join(sorted(unknown))}; there are {', '.join(case.name for case in found)}")
    chosen = [case for case in found if not args.names or case.name in args.names]
    with ThreadPoolExecutor(args.jobs) as pool:
        outcomes = list(pool.map(lambda case: tried(case, args.record, prepared), chosen))
    broken = [one for one in outcomes if one.broken]
    diagnosed = [one.cured for one in broken if one.diagnosed]
    print(
        f"{len(broken)} broken, {len(diagnosed)} diagnosed, {diagnosed.count(True)} cured by the finding's own command, "
        f"{diagnosed.count(None)} cannot be cured here, {diagnosed.count(False)} not cured; "
        f"{len(outcomes) - len(broken)} harmless or not set up"
    )
    return 1 if any(not one.text.startswith(("cured", "diagnosed", "quiet")) for one in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
