"""`apply --env`: an environment that is there whole or not at all, made by uv or by Python itself, of small wheels."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cudnn_resolve.execution import creation
from tests.functional.interpreters import interpreters
from tests.functional.test_apply_cli import Bench
from tests.program import Done, run
from tests.small_wheels import tree

pytestmark = pytest.mark.slow

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
DRIVER = """
import os, signal, sys
from cudnn_resolve import api
from cudnn_resolve.execution import creation
from cudnn_resolve.execution.journal import Journal
from cudnn_resolve.operations.options import ApplyRequest

where = sys.argv[1]

def die(kind):
    if kind == where:
        os.kill(os.getpid(), signal.SIGKILL)

def dying(name):
    function = getattr(creation, name)
    def wrapped(*words):
        die(f"before {name}")
        found = function(*words)
        die(f"after {name}")
        return found
    setattr(creation, name, wrapped)

for name in ("begin", "make_environment", "finish"):
    dying(name)
add = Journal.add

def add_and_die(journal, kind, **values):
    add(journal, kind, **values)
    die(kind)

Journal.add = add_and_die
api.apply(ApplyRequest(lock="pylock.toml", env="made", kernel="small"))
"""


class Making(Bench):
    """A folder in which `made` is to become an environment."""

    def __init__(self, base: Path) -> None:
        super().__init__(base)
        self.made = base / "made"
        self.kernel = base / "jupyter" / "kernels" / "small" / "kernel.json"

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "JUPYTER_DATA_DIR": str(self.base / "jupyter"), "VIRTUAL_ENV": str(self.venv)}

    def say(self, *words: str) -> Done:
        """A command line without an environment of its own."""
        return run(*words, environ=self.environ, cwd=self.base)

    def env(self, *words: str) -> Done:
        """`apply --env made`."""
        return self.say("apply", "--env", "made", *words)

    def killed(self, where: str) -> None:
        done = self.start(sys.executable, "-c", DRIVER, where)
        assert done.returncode == -signal.SIGKILL, done.stderr

    def says(self) -> str:
        argv = [str(self.made / "bin" / "python"), "-c", "import demo; print(demo.VERSION)"]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def making(tmp_path: Path) -> Making:
    made = Making(tmp_path)
    made.lock(("demo", "1.0"), ("other", "2.0"))
    return made


def test_an_environment_is_made_brought_up_to_date_and_removed(making: Making) -> None:
    first = making.env("--kernel", "small")
    assert first.returncode == 0, first
    assert f"source {making.made}/bin/activate" in " ".join(first.stdout.split())
    assert making.says() == "1.0"
    assert "cudnn-resolve apply --undo --env" in (making.made / "cudnn-resolve.txt").read_text()
    kernel = json.loads(making.kernel.read_text())
    assert kernel["argv"][:3] == [f"{making.made}/bin/python", "-m", "ipykernel_launcher"]
    before = tree(making.made, compiled=False)

    again = making.env("--kernel", "small")
    assert (again.returncode, again.stdout.splitlines()[0]) == (0, "nothing to do: the environment already matches the plan")
    assert tree(making.made, compiled=False) == before

    making.lock(("demo", "1.1"), ("other", "2.0"))
    assert making.env().returncode == 0
    assert making.says() == "1.1"
    assert making.env("--undo").returncode == 0
    assert making.says() == "1.0"
    assert making.env("--undo", "--dry-run").returncode == 0
    assert making.says() == "1.0"

    gone = making.env("--undo")
    assert gone.returncode == 0, gone
    assert "which it created, was removed" in " ".join(gone.stdout.split())
    assert not making.made.exists()
    assert not making.kernel.parent.exists()
    assert "nothing to undo" in making.env("--undo").stdout


def test_python_itself_makes_it_where_pip_is_wanted(making: Making) -> None:
    done = making.env("--installer", "pip")

    assert done.returncode == 0, done
    assert making.says() == "1.0"
    assert (making.made / "bin" / "pip").exists()
    assert making.env("--undo").returncode == 0
    assert not making.made.exists()


@pytest.mark.parametrize("there", ["a file", "an environment"])
def test_what_apply_did_not_make_is_refused(making: Making, there: str) -> None:
    making.made.mkdir()
    (making.made / ("pyvenv.cfg" if there == "an environment" else "notes.txt")).write_text("home = /usr/bin\n")

    done = making.env()

    assert done.returncode == 2, done
    assert "was not made by `apply --env`" in done.stderr
    assert len(list(making.made.iterdir())) == 1
    assert making.env("--undo").returncode == 2
    assert len(list(making.made.iterdir())) == 1


def test_a_folder_that_says_that_it_is_half_made_is_not_removed(making: Making) -> None:
    making.killed("after make_environment")
    moved = making.base / "mine"
    making.made.rename(moved)
    making.made.mkdir()
    (making.made / "notes.txt").write_text("mine")

    assert making.env("--undo").returncode == 2
    assert (making.made / "notes.txt").read_text() == "mine"


def test_a_failure_leaves_nothing(making: Making) -> None:
    making.lock(("demo", "1.0"), sha256="0" * 64)

    done = making.env()

    assert done.returncode == 3, done
    assert not making.made.exists()


def test_what_others_put_into_its_folder_stays(making: Making) -> None:
    making.made.mkdir()
    assert making.env().returncode == 0
    (making.made / "thesis.tex").write_text("mine")
    (making.made / "src").mkdir()

    gone = making.env("--undo")

    assert "except files of others: src, thesis.tex" in " ".join(gone.stdout.split())
    assert sorted(one.name for one in making.made.iterdir()) == ["src", "thesis.tex"]
    assert making.env().returncode == 2


def test_a_folder_that_was_there_stays_and_those_that_were_made_go(making: Making) -> None:
    (making.base / "there").mkdir()
    for name in ("there", "new/inner"):
        assert making.say("apply", "--env", name).returncode == 0
        assert making.say("apply", "--undo", "--env", name).returncode == 0

    assert list((making.base / "there").iterdir()) == []
    assert not (making.base / "new").exists()


def test_a_folder_with_the_number_of_the_one_that_was_being_made_is_another(making: Making) -> None:
    making.killed("after begin")
    (making.made / "cudnn-resolve.txt").unlink()  # the folder has its number, as a new one may, and not its word
    (making.made / "lib").mkdir()

    assert making.env("--undo").returncode == 2
    assert (making.made / "lib").exists()


def test_an_undo_that_was_stopped_before_it_began_leaves_the_environment(making: Making) -> None:
    assert making.env().returncode == 0
    with pytest.MonkeyPatch.context() as patched:
        for name, value in making.environ.items():
            patched.setenv(name, value)
        journals = creation.journals_at(str(making.made))
        creation.begin_removal(journals)

    (making.made / "thesis.tex").write_text("mine")
    assert "nothing to do" in making.env().stdout
    assert (making.made / "thesis.tex").exists()


def test_two_at_once_do_not_take_each_others_environment(making: Making) -> None:
    script = (
        "from pathlib import Path\n"
        "import subprocess, sys\n"
        "from cudnn_resolve import api\n"
        "from cudnn_resolve.operations.apply import Interaction\n"
        "from cudnn_resolve.operations.options import ApplyRequest\n"
        "def other(plan):\n"
        "    subprocess.run([sys.executable, '-m', 'cudnn_resolve', 'apply', '--env', 'made', '-y'], check=True, capture_output=True)\n"
        "    Path('made/thesis.tex').write_text('mine')\n"
        "    return True\n"
        "try:\n"
        "    api.apply(ApplyRequest(lock='pylock.toml', env='made'), Interaction(confirm=other))\n"
        "except Exception as error:\n"
        "    print(error)\n"
    )

    done = making.start(sys.executable, "-c", script)

    assert "meanwhile" in done.stdout, done
    assert making.says() == "1.0"
    assert (making.made / "thesis.tex").exists()


def test_every_kernel_goes_with_its_environment(making: Making) -> None:
    assert making.env("--kernel", "small").returncode == 0
    assert making.env("--kernel", "second").returncode == 0
    (making.kernel.parent / "logo.png").write_bytes(b"mine")

    assert making.env("--undo").returncode == 0

    left = sorted(str(one.relative_to(making.kernel.parents[1])) for one in making.kernel.parents[1].rglob("*"))
    assert left == ["small", "small/logo.png"]


@pytest.mark.parametrize("words", [("--python-version", "3"), ("--python-version", "abc"), ("--resume",)])
def test_words_that_mean_nothing_here_are_answered(making: Making, words: tuple[str, ...]) -> None:
    done = making.env(*words)

    assert "internal error" not in done.stderr, done
    assert done.returncode == (0 if words == ("--resume",) else 2), done


def test_a_kernel_of_another_environment_stays(making: Making) -> None:
    making.kernel.parent.mkdir(parents=True)
    making.kernel.write_text('{"argv": ["/usr/bin/python3"]}')

    done = making.env("--kernel", "small")

    assert done.returncode == 2, done
    assert not making.made.exists()
    assert making.kernel.read_text() == '{"argv": ["/usr/bin/python3"]}'


KILLS = (
    *(("after begin", "again"), ("after make_environment", "undo"), ("begin", "resume"), ("fetched", "undo"), ("change", "again")),
    *(("saved", "undo"), ("installed", "resume"), ("commit", "again"), ("before finish", "undo"), ("after finish", "undo")),
)


@pytest.mark.parametrize(("where", "then"), KILLS)
def test_killed_it_is_there_whole_or_not_at_all(making: Making, where: str, then: str) -> None:
    making.killed(where)

    if then == "undo":
        assert making.env("--undo").returncode == 0
        assert not making.made.exists()
        assert not making.kernel.exists()
        return
    done = making.env(*(("--resume",) if then == "resume" else ("--kernel", "small")))
    assert done.returncode == 0, done
    assert making.kernel.exists()
    assert making.says() == "1.0"
    assert making.env("--undo").returncode == 0
    assert not making.made.exists()


def test_the_way_back_without_the_program_removes_it(making: Making) -> None:
    making.killed("saved")

    (recover,) = making.base.glob("state/cudnn-resolve/environments/*/*/recover.py")
    done = subprocess.run([sys.executable, str(recover)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done
    assert not making.made.exists()
    assert making.env().returncode == 0


def test_one_that_was_removed_by_hand_is_made_again(making: Making) -> None:
    assert making.env().returncode == 0
    making.made.rename(making.base / "away")

    assert making.env().returncode == 0
    assert making.says() == "1.0"
    assert making.env("--undo").returncode == 0
    assert not making.made.exists()


def test_the_script_of_a_plan_makes_the_environment(making: Making) -> None:
    assert making.say("plan", "pylock.toml", "--env", "made", "--format", "sh", "-o", "setup.sh").returncode == 0

    wheels = (f"PIP_FIND_LINKS={making.wheels}", "PIP_NO_INDEX=1")
    done = making.start("env", *wheels, "bash", "setup.sh")

    text = (making.base / "setup.sh").read_text()
    assert f"-m venv {making.made}" in text
    assert f"PYTHON={making.made}/bin/python" in text
    assert done.returncode == 0, done
    assert making.says() == "1.0"


def test_the_script_of_a_plan_touches_no_folder_of_others(making: Making) -> None:
    assert making.say("plan", "pylock.toml", "--env", "made", "--format", "sh", "-o", "setup.sh").returncode == 0
    making.made.mkdir()
    (making.made / "pyvenv.cfg").write_text("mine")

    done = making.start("bash", "setup.sh")

    assert done.returncode == 1, done
    assert "exists and is not empty" in done.stderr
    assert [one.name for one in making.made.iterdir()] == ["pyvenv.cfg"]


def test_the_function_makes_it_too(making: Making) -> None:
    source = (
        "import cudnn_resolve\n"
        "done = cudnn_resolve.apply(lock='pylock.toml', env='made', kernel='small')\n"
        "print(done.status, done.execution.use[1])\n"
        "print(cudnn_resolve.apply(env='made', undo=True).status)\n"
    )
    done = making.start(sys.executable, "-c", source)

    assert done.stdout.splitlines() == ["done in Jupyter, choose the kernel small", "undone"]
    assert not making.made.exists()


PLAN = ("plan", "tensorflow==2.15", "--env", "made", "--device", "cpu", "--offline", "--format")


def planned(making: Making, form: str, *words: str) -> str:
    done = making.say(*PLAN, form, *words)
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def elsewhere(making: Making) -> str:
    """A machine of which only its Python is known: one without wheels of TensorFlow 2.15."""
    path = making.base / "facts.json"
    path.write_text(json.dumps({"platform": {"system": "linux", "arch": "x86_64", "glibc": "2.35"}, "python": {"version": "3.12.1"}}))
    return str(path)


def test_another_python_is_taken_where_the_own_one_cannot_do_it(making: Making, elsewhere: str) -> None:
    plan = json.loads(planned(making, "json", "--facts", elsewhere))

    first = plan["steps"][0]
    assert first["argv"] == ["uv", "venv", "--seed", "--python", "3.11", str(making.made)]
    assert "cannot be installed with Python 3.12.1" in first["why"]
    assert plan["facts"]["python"]["version"] == "3.11"


def test_a_python_that_is_named_is_the_only_one(making: Making, elsewhere: str) -> None:
    plan = json.loads(planned(making, "json", "--facts", elsewhere, "--python-version", "3.10"))

    assert plan["facts"]["python"]["version"] == "3.10"
    done = making.say(*PLAN, "json", "--facts", elsewhere, "--python-version", "3.12")
    assert (done.returncode, json.loads(done.stdout)["status"]) == (1, "unsatisfiable")


def test_the_notebook_makes_it_and_runs_its_cells_there(making: Making, elsewhere: str) -> None:
    book = json.loads(planned(making, "notebook", "--facts", elsewhere))

    setup, look = ("".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code")
    compile(setup, "setup", "exec")
    assert "'--python', '3.11'" in setup
    assert look.startswith(f"%%script {making.made}/bin/python -u\n")


def test_the_dockerfile_has_it_first_on_the_path(making: Making, elsewhere: str) -> None:
    text = planned(making, "dockerfile", "--facts", elsewhere)

    assert "FROM python:3.11-slim" in text
    assert f"RUN python3 -m venv {making.made}\n" in text
    assert f'PATH="{making.made}/bin:$PATH"' in text


def test_a_kernel_needs_an_environment(making: Making) -> None:
    done = making.say("apply", "--kernel", "small")

    assert (done.returncode, "--env DIR" in done.stderr) == (2, True)


def fetchable(base: Path) -> tuple[str, dict[str, str]]:
    """The minor of a Python that only uv can get here, and the variables by which it does: out of an archive on this disk."""
    outside = {minor: Path(path) for minor, path in interpreters().items() if "/usr/" not in path and minor not in ("3.6", "3.7")}
    found = {
        minor: path
        for minor, path in outside.items()
        if not any(Path(place, f"python{minor}").exists() for place in ("/usr/bin", "/usr/local/bin"))
    }
    if os.uname().machine != "x86_64" or not found:
        pytest.skip("every Python here is in the system's folders, where it is found")
    minor, path = min(found.items())
    asked = "import sys; print(sys.base_prefix, '%d.%d.%d' % sys.version_info[:3])"
    prefix, version = subprocess.run([path, "-I", "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    left_out = ("test", "idlelib", "site-packages", "__pycache__")

    def inside(one: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if set(one.name.split("/")) & set(left_out) or "/config-" in one.name else one

    with tarfile.open(base / "python.tar.gz", "w:gz", compresslevel=1) as archive:
        for name in (f"bin/python{minor}", "lib"):
            archive.add(f"{prefix}/{name}", f"python/{name}", filter=inside)
        archive.add(f"{prefix}/bin/python{minor}", "python/bin/python3")
        archive.add(f"{prefix}/bin/python{minor}", "python/bin/python")
    major, second, patch = map(int, version.split("."))
    one = {
        "name": "cpython",
        "arch": {"family": "x86_64", "variant": None},
        "os": "linux",
        "libc": "gnu",
        "prerelease": "",
        "variant": None,
    }
    digest = hashlib.sha256((base / "python.tar.gz").read_bytes()).hexdigest()
    numbers = {"major": major, "minor": second, "patch": patch, "url": (base / "python.tar.gz").as_uri(), "sha256": digest, "build": "1"}
    (base / "downloads.json").write_text(json.dumps({f"cpython-{version}-linux-x86_64-gnu": {**one, **numbers}}))
    (base / "few").mkdir()
    (base / "few/uv").symlink_to(Path(sys.executable).parent / "uv")
    own = {"HOME": str(base / "home"), "PATH": str(base / "few"), "PYENV_ROOT": "", "CONDA_EXE": "", "CONDA_PREFIX": ""}
    return minor, {**own, "UV_PYTHON_DOWNLOADS_JSON_URL": str(base / "downloads.json"), "UV_PYTHON_INSTALL_DIR": str(base / "pythons")}


def test_a_python_that_is_not_here_is_fetched_by_uv(making: Making) -> None:
    minor, own = fetchable(making.base)
    (making.base / "home").mkdir()

    def make() -> Done:
        words = ("apply", "--env", "made", "--python-version", minor, "-q")
        return run(*words, environ={**making.environ, **own}, cwd=making.base)

    done = make()
    assert done.stdout.startswith("done: "), done
    assert making.says() == "1.0"
    asked = "import sys; print('%d.%d' % sys.version_info[:2], sys.base_prefix)"
    version, prefix = subprocess.run([making.made / "bin/python", "-c", asked], capture_output=True, text=True, check=True).stdout.split()
    assert version == minor
    assert prefix.startswith(str(making.base / "pythons"))
    assert make().stdout.startswith("nothing to do: ")

    assert run("apply", "--undo", "--env", "made", "-q", environ={**making.environ, **own}, cwd=making.base).returncode == 0
    shutil.rmtree(making.base / "pythons")
    (making.base / "python.tar.gz").unlink()
    refused = make()

    assert refused.returncode == 3, refused
    assert f"cannot fetch Python {minor}" in refused.stderr
    assert f"apt-get install python{minor}-venv" in " ".join(refused.stderr.split())
    assert not making.made.exists()
