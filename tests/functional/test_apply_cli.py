"""`apply` as users run it: a lock on disk, small wheels, a real environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from cudnn_resolve.host import terminal
from tests.apply_world import ApplyWorld, lend_pip
from tests.index_server import IndexServer, cut
from tests.program import ROOT, Done, run
from tests.small_wheels import tree, write_wheel

pytestmark = pytest.mark.slow


class Bench:
    """A folder with an environment, wheels, and a lock of them."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.venv = base / "venv"
        venv.create(self.venv, symlinks=True)
        self.wheels = base / "wheels"

    def lock(self, *packages: tuple[str, str], called: str = "pylock.toml", **changes: str) -> Path:
        """A lock of freshly made wheels."""
        lines = ['lock-version = "1.0"', 'created-by = "a test"', ""]
        for package, version in packages:
            file = write_wheel(self.wheels, package, version, scripts=(package,))
            entry = {"name": file.filename, "path": f"wheels/{file.filename}", "sha256": file.hashes["sha256"], **changes}
            lines += [
                "[[packages]]",
                f'name = "{package}"',
                f'version = "{version}"',
                f'wheels = [{{name = "{entry["name"]}", path = "{entry["path"]}", hashes = {{sha256 = "{entry["sha256"]}"}}}}]',
                "",
            ]
        path = self.base / called
        path.write_text("\n".join(lines))
        return path

    @property
    def environ(self) -> dict[str, str]:
        own = {"XDG_STATE_HOME": str(self.base / "state"), "UV_CACHE_DIR": str(self.base / "uv-cache")}
        return {**os.environ, **own, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def __call__(self, *words: str, verb: str = "apply", env: Mapping[str, str] | None = None) -> Done:
        return run(verb, "--python", str(self.venv), *words, environ={**self.environ, **(env or {})}, cwd=self.base)

    def start(self, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """What becomes of a process that may import the program."""
        environ = {**self.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(argv, env=environ, cwd=cwd or self.base, capture_output=True, text=True, check=False)

    @property
    def argv(self) -> tuple[str, ...]:
        """The words of an apply in a process of its own."""
        return (sys.executable, "-m", "cudnn_resolve", "apply", "--python", str(self.venv))


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_lock_that_lies_here_is_installed_undone_and_listed(bench: Bench) -> None:
    bench.lock(("demo", "1.0"), ("other", "2.0"))
    before = tree(bench.venv)

    first = bench("-q")
    assert (first.returncode, first.stderr) == (0, ""), first
    assert first.stdout.startswith("done: the environment matches the plan\n")
    assert subprocess.run([bench.venv / "bin/demo"], capture_output=True, text=True, check=True).stdout == "1.0\n"
    after = tree(bench.venv, compiled=False)
    second = bench("-q")
    assert second.stdout == "nothing to do: the environment already matches the plan\n"
    assert tree(bench.venv, compiled=False) == after
    listed = json.loads(bench("--history", "--format", "json").stdout)
    assert [(one["id"], one["state"], one["can_undo"]) for one in listed["applies"]] == [(1, "committed", True)]
    assert "committed" in bench("--history").stdout
    told = bench("--undo", "--dry-run").stdout
    assert told.startswith("nothing was changed")
    assert "would be removed: demo, other" in told
    assert tree(bench.venv, compiled=False) == after
    assert bench("--undo").stdout.startswith("undone: ")
    assert tree(bench.venv, compiled=False) == before
    assert bench("--undo").stdout.startswith("nothing to undo")
    assert bench("--undo", "1").returncode == 3
    assert bench("--undo", "7").returncode == 2


def test_a_dry_run_changes_nothing(bench: Bench) -> None:
    path = bench.lock(("demo", "1.0"))
    before = tree(bench.venv)

    done = bench(str(path), "--dry-run")

    assert done.returncode == 0
    assert "+ demo 1.0" in done.stderr
    assert "nothing was changed" in done.stdout
    assert tree(bench.venv) == before
    assert not (bench.base / "state").exists()


def test_json_tells_the_result_and_the_plan(bench: Bench) -> None:
    bench.lock(("demo", "1.0"))

    told = json.loads(bench("--format", "json", "-q").stdout)

    assert (told["schema"], told["status"], told["installed"]) == ("cudnn-resolve/apply/1", "done", ["demo==1.0"])
    assert told["plan"]["pip"][0]["action"] == "install"


@pytest.mark.parametrize(
    ("changes", "code", "said"),
    [
        ({"sha256": "0" * 64}, 3, "sha256"),
        ({"path": "../../etc/passwd"}, 3, "is missing"),
        ({"path": "/etc/passwd"}, 3, "cannot be installed"),
        ({"name": "demo-1.0-py3-none-any.whl; touch owned"}, 2, ""),
        ({"name": "../demo-1.0-py3-none-any.whl"}, 2, ""),
        ({"name": "demo-9.9-py3-none-any.whl"}, 2, ""),
    ],
)
def test_a_hostile_lock(bench: Bench, changes: dict[str, str], code: int, said: str) -> None:
    path = bench.lock(("demo", "1.0"), **changes)
    before = tree(bench.venv)

    done = bench(str(path), "-q")

    assert done.returncode in (code, 3), done
    assert said in done.stderr
    assert tree(bench.venv) == before
    assert not (bench.base / "owned").exists()


def test_a_lock_with_a_name_that_is_a_command(bench: Bench) -> None:
    path = bench.base / "pylock.toml"
    path.write_text('lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "demo; touch owned"\nversion = "1.0"\n')

    done = bench("-q")

    assert done.returncode == 2
    assert not (bench.base / "owned").exists()
    assert path.exists()


def test_a_lock_whose_words_for_the_system_are_programs(bench: Bench) -> None:
    plain = bench.lock(("demo", "1.0")).read_text()
    tool = f'[tool.cudnn-resolve]\nschema = 1\ntargets = ["torch"]\nplatforms = ["linux_{os.uname().machine}"]\n'
    tool += f'python = "{sys.version_info[0]}.{sys.version_info[1]}"\n'
    before = tree(bench.venv)
    for line, said in (
        ("""environment = [{kind = "preload", value = '\"\"\"+open("owned","w").name+\"\"\"', why = "x"}]""", "not a valid framework name"),
        ('environment = [{kind = "ldconfig", value = "/usr/lib\\ntouch owned", why = "x"}]', "not a valid folder for the linker cache"),
        ('environment = [{kind = "$(touch owned)", value = "", why = "x"}]', "is not a kind of loader entry"),
        ('apt = [{name = "libcudnn8\\u001b[31m", version = "1", repository = "x"}]', "not a valid apt package name"),
        ('apt = [{name = "libcudnn8", version = "1; touch owned", repository = "x"}]', "not a valid version of libcudnn8"),
    ):
        (bench.base / "pylock.toml").write_text(f"{plain}{tool}{line}\n")
        done = bench("-q")
        assert (done.returncode, said in done.stderr, "\x1b" in done.stderr) == (2, True, False), done
    assert tree(bench.venv) == before
    assert not (bench.base / "owned").exists()


def test_a_lock_for_other_machines_is_refused(bench: Bench) -> None:
    path = bench.lock(("demo", "1.0"))
    path.write_text(path.read_text().replace('created-by = "a test"', 'created-by = "a test"\nrequires-python = "<3.3"'))

    done = bench("-q")

    assert done.returncode == 1
    assert "does not fit this machine" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to install"),
        (("--undo", "x"), "is not a number"),
        (("--undo", "--resume"), "cannot be combined"),
        (("--undo", "-f", "torch"), "takes no"),
        (("--resume", "--offline"), "--resume takes no --offline"),
        (("pylock.toml", "-f", "torch"), "cannot be combined"),
        (("-f", "torch", "--platform", "linux_aarch64"), "another machine"),
        (("nowhere.toml",), "there is no file"),
    ],
)
def test_wrong_words(bench: Bench, words: tuple[str, ...], said: str) -> None:
    done = bench(*words)

    assert done.returncode == 2, done
    assert any(one in done.stderr for one in said.split("|"))


def test_a_frozen_plan_without_files_is_refused_with_the_reason(bench: Bench) -> None:
    before = tree(bench.venv)

    done = bench("-f", "torch==2.6.0", "--offline", "-q")

    assert done.returncode == 3, done
    assert "no file with a hash is known" in done.stderr
    assert "--no-hashes" in done.stderr
    assert tree(bench.venv) == before


def test_resume_does_again_what_was_stopped_from_where_it_was_asked_for(bench: Bench) -> None:
    project = bench.base / "project"
    project.mkdir()
    lock = bench.lock(("demo", "1.0"), called="project/pylock.toml", path="../wheels/demo-1.0-py3-none-any.whl")
    assert bench("--resume").stdout.startswith("nothing to resume")
    program = (
        "import os, signal, subprocess, sys\n"
        "from cudnn_resolve.execution import journal\n"
        "add = journal.Journal.add\n"
        "again = [sys.executable, '-m', 'cudnn_resolve', 'apply', '--python', '../venv']\n"
        "def dying(self, kind, **values):\n"
        "    add(self, kind, **values)\n"
        "    if kind == 'installed':\n"
        "        print('at', os.getpid(), flush=True)\n"
        "        for word in ('--history', '--undo'): subprocess.run([*again, word], stderr=subprocess.STDOUT)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "journal.Journal.add = dying\n"
        "from cudnn_resolve.cli.main import main\n"
        "main(['apply', '--python', '../venv', '-q'])\n"
    )
    killed = bench.start(sys.executable, "-c", program, cwd=project)
    assert killed.returncode == -9
    number = killed.stdout.split()[1]
    assert re.search(r"^1  \S+  at work  ", killed.stdout, re.MULTILINE)
    assert re.search(rf"^error: another apply is running in \S+ \(process {number}, since ", killed.stdout, re.MULTILINE)

    torn = tree(bench.venv)
    said = bench("--resume", "-q", "--dry-run").stdout
    assert said.startswith("nothing was changed (--dry-run)")
    assert "apply number 1 was interrupted: it would be undone first" in said
    assert "would be removed: demo" in bench("--undo", "--dry-run").stdout
    assert tree(bench.venv) == torn
    done = bench("--resume", "-q")

    assert done.returncode == 0, done
    assert done.stdout.startswith("done: ")
    assert bench(str(lock), "-q").stdout == "nothing to do: the environment already matches the plan\n"


def test_an_index_that_dies_midway_changes_nothing_and_what_came_is_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_RETRIES", "1")
    with IndexServer() as index:
        lines = ['lock-version = "1.0"', 'created-by = "a test"']
        for name in ("demo", "other"):
            file = index.add_wheel(name, "1.0", members={f"{name}/data.bin": os.urandom(4000)})
            url = f"{index.root}/files/{name}/{file.filename}"
            wheel = f'{{name = "{file.filename}", url = "{url}", hashes = {{sha256 = "{file.digest}"}}}}'
            lines += ["[[packages]]", f'name = "{name}"', 'version = "1.0"', f"wheels = [{wheel}]"]
        (bench.base / "pylock.toml").write_text("\n".join(lines))
        lend_pip(next(bench.venv.glob("lib/python3*/site-packages")))
        before = tree(bench.venv)
        index.fail("/files/other/", cut(0))

        lost = bench("-q", "--installer", "pip")

        assert (lost.returncode, tree(bench.venv)) == (3, before), lost
        assert "other-1.0-py3-none-any.whl could not be downloaded" in lost.stderr
        assert "run the same command again to continue" in lost.stderr
        index.heal()
        index.asked.clear()
        again = bench("-q", "--installer", "pip")
        assert (again.returncode, index.paths()) == (0, ["/files/other/other-1.0-py3-none-any.whl"]), again


MOUNTS = pytest.mark.skipif(
    subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode != 0,
    reason="nothing can be mounted here: that needs root and a mount namespace",
)
READ_ONLY = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@"'
SMALL_DISK = 'mount -t tmpfs -o size="$1" none "$2" && shift 2 && exec "$@"'


@MOUNTS
@pytest.mark.parametrize("size", ["8k", "24k"])
def test_a_full_disk_changes_nothing(bench: Bench, size: str) -> None:
    bench.lock(("demo", "1.0"), ("other", "2.0"))
    (bench.base / "state").mkdir()
    before = tree(bench.venv)

    done = bench.start("unshare", "-m", "sh", "-c", SMALL_DISK, "sh", size, str(bench.base / "state"), *bench.argv, "-q")

    assert done.returncode in (3, 4), done
    assert "o space left" in done.stdout + done.stderr or "are free" in done.stderr
    assert tree(bench.venv) == before


FILLED = """
import contextlib, os, sys
from pathlib import Path
from cudnn_resolve.cli.main import main
from cudnn_resolve.execution import journal
from tests.small_wheels import tree

add, venv = journal.Journal.add, Path("venv")

def filling(self, kind, **values):
    add(self, kind, **values)
    if kind == "saved":
        with contextlib.suppress(OSError), open("venv/filler", "wb", 0) as file:
            while file.write(bytes(1024)):
                pass

before = tree(venv)
journal.Journal.add = filling
code = main(["apply", "--python", "venv", "-q"])
os.unlink("venv/filler")
print(code, [name for name in {*before, *tree(venv)} if before.get(name) != tree(venv).get(name)])
"""


@MOUNTS
def test_a_disk_that_fills_up_in_the_middle_and_one_that_cannot_be_written(bench: Bench) -> None:
    bench.lock(("demo", "1.0"), ("other", "2.0"))
    before = tree(bench.venv)

    refused = bench.start("unshare", "-m", "sh", "-c", READ_ONLY, "sh", str(bench.venv), *bench.argv)

    assert refused.returncode == 3
    assert refused.stderr.startswith("warning: this user may not write")  # before the plan, and again after it
    assert "error: this user may not write" in refused.stderr
    bench.venv.rename(bench.base / "as-it-was")
    bench.venv.mkdir()
    words = ["unshare", "-m", "sh", "-c", SMALL_DISK.replace("shift 2", "cp -a as-it-was/. venv && shift 2"), "sh", "4m", str(bench.venv)]
    done = bench.start(*words, sys.executable, "-c", FILLED)
    assert "failed; everything was put back" in done.stdout, done
    assert done.stdout.endswith("4 []\n"), done
    assert tree(bench.base / "as-it-was") == before


def test_whoever_says_no_is_told_that_nothing_was_changed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.lock(("demo", "1.0"))
    before = tree(bench.venv)
    monkeypatch.setattr(terminal, "can_answer", lambda: True)
    monkeypatch.setattr(terminal, "ask", lambda _text: False)

    done = bench()

    assert (done.returncode, done.stdout) == (1, "nothing was changed: not confirmed\n"), done
    assert tree(bench.venv) == before


def test_a_script_of_a_lock_installs_what_is_in_it(bench: Bench) -> None:
    bench.lock(("demo", "1.0"))

    done = bench("pylock.toml", "--format", "sh", verb="plan")

    assert done.returncode == 0, done.stderr
    assert "demo==1.0 --hash=sha256:" in done.stdout
    assert "nothing to do" not in done.stdout


def test_a_lock_that_lies_here_wins_over_settings_and_where_they_disagree_is_said(bench: Bench) -> None:
    bench.lock(("torch", "2.5.1"), ("demo", "1.0"))
    (bench.base / "pyproject.toml").write_text('[tool.cudnn-resolve]\nframework = ["torch==2.6.0", "jax"]\noffline = true\n')

    refused = bench()
    assert (refused.returncode, "a framework will not run" in refused.stderr) == (1, True)  # this torch brings no CUDA libraries
    done = bench("--force", "-v")  # a short plan counts what does not fit into its lines
    again = bench("--force", "-v")
    told = json.loads(bench("--force", "--format", "json", "-q").stdout)

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "done: the environment matches the plan"), done
    assert (bench.venv / "bin/torch").exists()
    said = " ".join(done.stderr.split())
    assert "pylock.toml holds torch 2.5.1, but the settings ask for torch==2.6.0: the lock counts" in said
    assert "pylock.toml holds nothing of that name, but the settings ask for jax" in said
    assert "but the settings ask for torch==2.6.0" in again.stdout
    assert [one["code"] for one in told["plan"]["warnings"]].count("lock-settings") == 2


def test_settings_that_the_lock_meets_are_not_told(bench: Bench) -> None:
    bench.lock(("torch", "2.5.1"))
    (bench.base / "pyproject.toml").write_text('[tool.cudnn-resolve]\nframework = ["torch>=2.5"]\n')

    assert "the settings ask for" not in bench("--dry-run").stderr


def test_what_a_power_failure_emptied_is_laid_down_again(bench: Bench) -> None:
    bench.lock(("demo", "1.0"), ("other", "2.0"))
    assert bench("-q").returncode == 0
    after = tree(bench.venv, compiled=False)
    site = next(bench.venv.glob("lib/python3*/site-packages"))
    (site / "demo/__init__.py").write_text("")
    (site / "other/__init__.py").unlink()

    mended = bench("-q")

    assert mended.returncode == 0
    assert mended.stdout.startswith("done: ")
    assert "files of demo 1.0 are empty, such as demo/__init__.py: the package was reinstalled" in " ".join(mended.stdout.split())
    assert "files of other 2.0 are missing" in " ".join(mended.stdout.split())
    now = tree(bench.venv, compiled=False)
    noted = ("/RECORD", "/uv_cache.json", ".lock")
    assert [name for name in {*after, *now} if after.get(name) != now.get(name) and not name.endswith(noted)] == []

    (site / "demo/__init__.py").write_text("PATCHED = True\n")  # it may be meant
    told = bench("-q")
    assert told.returncode == 0
    assert told.stdout.startswith("nothing to do")
    assert "`apply --reinstall-package demo` restores them" in " ".join(told.stdout.split())


def test_check_tells_each_damage_with_its_owner(bench: Bench) -> None:
    bench.lock(("demo", "1.0"), ("other", "2.0"))
    assert bench("-q").returncode == 0
    site = next(bench.venv.glob("lib/python3*/site-packages"))

    whole = bench(verb="check").stdout
    assert "no problem was found in what was judged" in whole
    assert "not judged: " in whole

    (site / "demo/__init__.py").write_text("")
    (site / "other/mine.txt").write_text("mine")
    found = bench("--format", "json", verb="check")
    assert found.returncode == 1
    (verdict,) = json.loads(found.stdout)["verdicts"]
    assert (verdict["what"], verdict["status"]) == (str(bench.venv.resolve()), "breaks")
    assert verdict["not_judged"]
    broken, foreign = verdict["findings"]
    assert (broken["severity"], broken["remedy"][0]["command"]) == (
        "error",
        f"cudnn-resolve apply --reinstall-package demo --python {bench.venv}",
    )
    assert "demo 1.0 are empty: demo/__init__.py" in broken["summary"]
    assert (foreign["severity"], "among those of other belong to no package: other/mine.txt" in foreign["summary"]) == ("info", True)


@pytest.mark.parametrize("verb", ["check", "doctor", "validate"])
def test_every_look_at_an_environment_sees_what_a_power_failure_emptied(world: ApplyWorld, tmp_path: Path, verb: str) -> None:
    (world.site / "nvidia/cudnn/lib/libcudnn.so.9").write_bytes(b"")

    done = run(verb, "--python", world.python, environ=world.environ(), cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    assert re.search(r"files (?:of|that) nvidia-cudnn-cu12 9\.1\.0\.70 (?:installed )?are empty", " ".join(done.stdout.split()))
    assert "cudnn-resolve apply --reinstall-package nvidia-cudnn-cu12" in done.stdout
