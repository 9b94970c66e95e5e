"""A small world to apply changes in: a real virtual environment, small real wheels with real names, and `apply` as a process.

Run as a program it carries out one task of that world, as the verb does once it has a plan:

    python -m tests.apply_world BASE INSTALLER apply|undo [--stop-at N]
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path

from cudnn_resolve.errors import CudnnResolveError
from cudnn_resolve.execution.environment import Environment, ask_environment
from cudnn_resolve.execution.fetch import local_members
from cudnn_resolve.execution.installed import installed_packages
from cudnn_resolve.execution.journal_store import Journals
from cudnn_resolve.execution.loader_settings import is_done
from cudnn_resolve.execution.model import Execution
from cudnn_resolve.execution.recover import repair, undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.execution.task import Task, Work
from cudnn_resolve.host.environment_mutex import hold
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.planning.model import PipAction
from tests.small_wheels import file_of, tree, write_wheel
from tests.watching import watch

ROOT = Path(__file__).resolve().parents[1]
OLD = {"torch": "2.5.0", "nvidia-cudnn-cu12": "9.1.0.70", "nvidia-cublas-cu12": "12.4.5.8", "tensorflow-gpu": "2.12.0"}
NEW = {"torch": "2.6.0", "nvidia-cudnn-cu12": "9.3.0.75", "numpy": "2.0.0"}
REMOVED = ("tensorflow-gpu",)


def lend_pip(site: Path) -> None:
    """A copy of the pip that runs here in an environment: installing one takes ten times as long."""
    import pip

    package = Path(pip.__file__).parent
    info = next(package.parent.glob("pip-*.dist-info"))
    shutil.copytree(package, site / "pip")
    shutil.copytree(info, site / info.name)


class ApplyWorld:
    """The world below a folder; `build` makes it, `reset` brings the environment back."""

    def __init__(self, base: Path, installer: str = "pip") -> None:
        self.base = base
        self.installer = installer
        self.venv = base / "venv"
        self.wheels = base / "wheels"
        self.state = base / "state"
        self.template = base / "template"

    @property
    def python(self) -> str:
        return str(self.venv / "bin" / "python")

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python3*/site-packages"))

    def build(self, *, modules: int = 12) -> None:
        """Wheels, the environment with the old ones in it, and a copy of it."""
        self.base.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(self.venv)], check=True)
        if self.installer == "pip":
            lend_pip(self.site)
        for versions in (OLD, NEW):
            for name, version in versions.items():
                self.wheel(name, version, modules)
        paths = [str(self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl") for name, version in OLD.items()]
        self.lay_down(paths)
        (self.site / "torch" / "users_own.txt").write_text("not in any RECORD\n")
        (self.site / "editable.pth").write_text("\n")
        shutil.copytree(self.venv, self.template, symlinks=True)

    def lay_down(self, paths: list[str]) -> None:
        if self.installer == "pip":
            argv = [self.python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", *paths]
        else:
            argv = ["uv", "pip", "install", "-q", "--no-deps", "--no-index", "--python", self.python, *paths]
        subprocess.run(argv, check=True)

    def wheel(self, name: str, version: str, modules: int = 3) -> None:
        module = name.replace("-", "_")
        if name.startswith("nvidia-"):
            part = name.split("-")[1]
            files: dict[str, str | bytes] = {
                "nvidia/__init__.py": "",
                f"nvidia/{part}/__init__.py": "",
                f"nvidia/{part}/lib/lib{part}.so.9": f"{version}\n" * 2000,
            }
            if name == "nvidia-cudnn-cu12":
                files["nvidia/cudnn/include/cudnn.h"] = version
            write_wheel(self.wheels, name, version, files)
            return
        files = {f"{module}/__init__.py": f"VERSION = {version!r}\ndef main():\n    print(VERSION)\n"}
        files |= {f"{module}/part{number}.py": f"N = {number}, {version!r}\n" for number in range(modules)}
        files[f"{module}/only_in_{version.replace('.', '_')}/__init__.py"] = ""
        files[f"{module}-{version}.data/data/share/{module}/notes.txt"] = version
        write_wheel(self.wheels, name, version, files, scripts=(f"{module}-tool", f"{module}-{version}"))

    def reset(self) -> None:
        """The environment as it was built; the thousand files of pip, which no task here changes, are moved and not copied."""
        pip = [path.rename(self.base / path.name) for path in self.venv.glob("lib/python3*/site-packages/pip*")]
        shutil.rmtree(self.venv)
        shutil.copytree(self.template, self.venv, symlinks=True, ignore=lambda _folder, _names: [path.name for path in pip])
        for path in pip:
            path.rename(self.site / path.name)
        shutil.rmtree(self.state, ignore_errors=True)

    def environ(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.state), "PYTHONPATH": str(ROOT), "UV_CACHE_DIR": str(self.base / "uv-cache")}

    def start(self, verb: str, *more: str) -> subprocess.Popen[str]:
        """The program, in a session of its own."""
        argv = [sys.executable, "-m", "tests.apply_world", str(self.base), self.installer, verb, *more]
        return subprocess.Popen(
            argv, env=self.environ(), cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def finish(self, verb: str, *more: str) -> tuple[int, str]:
        """The exit code of the program and what it said."""
        process = self.start(verb, *more)
        output, _ = process.communicate(timeout=600)
        return process.returncode, output

    def former(self) -> dict[str, str]:
        """The environment's files, compiled ones too."""
        return tree(self.venv)

    def planned(self) -> dict[str, str]:
        """The environment's files but for what holds times: compiled files, uv's note of the wheel, and lists of those."""
        found = tree(self.venv, compiled=False)
        return {
            name: value
            for name, value in found.items()
            if not name.endswith(("uv_cache.json", "/RECORD", ".lock")) and "__pycache__" not in name
        }

    def task(self, environment: Environment) -> Task:
        """What is still to be done from what is installed to what is planned."""
        here = {name: one.version for name, one in installed_packages(LinuxHost(), environment).items()}
        return Task(
            targets=("torch==2.6.0",),
            install=tuple(
                PipAction(
                    name=name,
                    version=version,
                    file=file_of(self.wheels / f"{name.replace('-', '_')}-{version}-py3-none-any.whl"),
                    installed=here.get(name),
                )
                for name, version in NEW.items()
                if here.get(name) != version
            ),
            remove=tuple(name for name in REMOVED if name in here),
            frameworks=("torch",),
            preload=("torch",),
        )


def work_in(world: ApplyWorld) -> Work:
    """With what to work in a world; the hold is taken."""
    environment = ask_environment(LinuxHost(), world.python)
    taken = hold(environment.scheme["purelib"], wait_seconds=30)
    assert taken is not None
    return Work(
        host=LinuxHost(),
        journals=Journals(environment),
        hold=taken,
        installer=world.installer,
        members=local_members,
    )


def main(words: list[str]) -> int:
    """Carries out one verb."""
    world = ApplyWorld(Path(words[0]), words[1])
    work = work_in(world)
    if "--stop-at" in words:
        numbers = count(1)
        stop_at = int(words[words.index("--stop-at") + 1])
        watch(lambda _kind: os.kill(os.getpid(), signal.SIGKILL) if next(numbers) == stop_at else None)
    try:
        if words[2] == "undo":
            done = undo(work, None)
        else:
            repaired = repair(work)
            task = world.task(work.environment)
            done = (
                repaired
                if repaired is not None and repaired.left
                else Execution(status="nothing")
                if is_done(task, work)
                else carry_out(task, work)
            )
    except CudnnResolveError as error:
        sys.stdout.write(f"{error}\n")
        return int(error.exit_code)
    sys.stdout.write(json.dumps({"status": done.status, "left": done.left, "trouble": done.trouble and done.trouble.message}) + "\n")
    return int(done.exit_code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
