"""Bundles as users make and install them, of small wheels: with no network, and with whatever is wrong that a byte can do."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.host import bundle as on_disk
from cudnn_resolve.host import bundle_tar, disk
from tests.examples import examples
from tests.functional.test_apply_cli import Bench
from tests.program import ROOT, Done, run
from tests.small_wheels import tree, write_wheel
from tests.wheel_maker import made_wheel

pytestmark = pytest.mark.slow

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"


class Bundling(Bench):
    """A folder with a lock of two packages, and the bundle `b` of it."""

    def make(self, *words: str) -> Done:
        return self.say("bundle", *words)

    def say(self, *words: str) -> Done:
        return run(*words, environ=self.environ, cwd=self.base)

    @property
    def bundle(self) -> Path:
        return self.base / "b"

    def alone(self) -> Path:
        """A copy of the bundle, where nothing else is left to install from."""
        shutil.rmtree(self.wheels)
        (self.base / "pylock.toml").unlink()
        return self.bundle

    def by_script(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        """`sh start` on a machine that has a Python and nothing else; without a network where that can be had."""
        argv = ["sh", str(self.bundle / "start"), *words]
        path = f"{Path(sys.base_prefix, 'bin')}:/usr/bin:/bin"
        return subprocess.run(
            [*without_network(), *argv], env={"PATH": path}, cwd=cwd or self.base, capture_output=True, text=True, check=False
        )


def without_network() -> list[str]:
    """What is put before a command so that it has no network; nothing where this system does not allow it."""
    words = ["unshare", "-n"] if os.geteuid() == 0 else ["unshare", "-rn"]
    try:
        return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else []
    except OSError:
        return []


@pytest.fixture
def bench(tmp_path: Path) -> Bundling:
    made = Bundling(tmp_path)
    made.lock(("demo", "1.0"), ("other", "2.0"))
    assert made.make("-o", "b", "-q").returncode == 0
    return made


def test_a_bundle_is_installed_by_apply_and_by_its_start_script(bench: Bundling) -> None:
    bundle = bench.alone()

    first = bench("b", "-q")
    second = bench("b", "-q")
    started = bench.by_script("made")

    assert first.stdout.startswith("done: the environment matches the plan\n"), first
    assert second.stdout == "nothing to do: the environment already matches the plan\n"
    assert started.returncode == 0, started.stderr
    for python in (bench.venv / "bin/python", bench.base / "made/bin/python"):
        said = subprocess.run(
            [python, "-c", "import demo, other; print(demo.VERSION, other.VERSION)"], capture_output=True, text=True, check=False
        )
        assert said.stdout == "1.0 2.0\n", said.stderr
    made = {path.name for path in (bench.base / "made").iterdir()} - {".gitignore"}  # which venv writes from Python 3.13 on
    assert made == {"bin", "include", "lib", "lib64", "pyvenv.cfg"}
    assert " ".join(bench.make("--check", str(bundle)).stdout.split()).startswith(f"{bundle}: pylock.toml; 3 wheels, ")


def test_one_file_is_a_bundle_too(bench: Bundling) -> None:
    assert bench.make("-o", "b.tar", "-q").returncode == 0
    assert bench.make("-o", "again.tar", "-q").returncode == 0
    assert (bench.base / "b.tar").read_bytes() == (bench.base / "again.tar").read_bytes()
    with tarfile.open(bench.base / "b.tar") as archive:
        assert archive.getnames()[0] == "SHA256SUMS"
    bench.alone()
    shutil.rmtree(bench.bundle)

    done = bench("b.tar", "-q")

    assert done.stdout.startswith("done: "), done
    assert list((bench.base / "state/cudnn-resolve/bundles").iterdir()) == []
    assert bench.make("--check", "b.tar").returncode == 0


def test_sha256sum_agrees_and_another_folder_is_as_good(bench: Bundling) -> None:
    done = subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=bench.bundle, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    bench.bundle.rename(bench.base / "elsewhere")
    shutil.rmtree(bench.wheels)
    assert bench("elsewhere", "-q").stdout.startswith("done: ")


def test_uv_installs_the_lock_of_a_bundle_as_it_lies(bench: Bundling) -> None:
    bench.alone()
    made = bench.base / "plain"
    environ = {**bench.environ, "UV_OFFLINE": "1"}
    for argv in (
        ["venv", "-q", "-p", sys.executable, str(made)],
        ["pip", "sync", "-q", "--preview", "--python", str(made), "b/pylock.toml"],
    ):
        done = subprocess.run(["uv", *argv], env=environ, cwd=bench.base, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert (made / "bin/demo").exists()


def test_a_further_lock_is_added_and_the_one_for_this_python_is_taken(bench: Bundling) -> None:
    text = bench.lock(("demo", "3.0")).read_text()
    (bench.base / "pylock.toml").write_text(f'requires-python = "==3.9.*"\n{text}')
    refused = bench.make("-o", "b", "-q")

    added = bench.make("--add", "-o", "b", "-q", "--python-version", "3.9", "--platform", f"linux_{os.uname().machine}")
    names = sorted(path.name for path in bench.bundle.glob("pylock*.toml"))
    bench.alone()

    assert refused.returncode == 2
    assert "--add" in refused.stderr
    assert added.returncode == 0, added
    assert len(names) == 2
    assert bench("b", "-q").stdout.startswith("done: ")
    assert bench("--dry-run", f"b/{names[0]}").returncode == 1
    assert subprocess.run([bench.venv / "bin/demo"], capture_output=True, text=True, check=True).stdout == "1.0\n"


def test_a_place_that_holds_something_else_is_refused(bench: Bundling) -> None:
    (bench.base / "home").mkdir()
    (bench.base / "home" / "letter.txt").write_text("mine")

    assert bench.make("-o", "home").returncode == 2
    assert bench.make("-o", "pylock.toml").returncode == 2
    assert bench.make("--add", "-o", "nothing").returncode == 2
    assert bench.make("--check", "home").returncode == 2
    assert bench.make("-q").returncode == 2
    assert [path.name for path in (bench.base / "home").iterdir()] == ["letter.txt"]


def test_a_bundle_names_what_it_does_not_read(bench: Bundling) -> None:
    (bench.bundle / "wheels" / "extra.whl").write_bytes(b"anything")

    done = json.loads(bench.make("--check", "b", "--format", "json").stdout)

    assert done["notes"] == ["wheels/extra.whl is not part of the bundle, and is ignored"]
    assert done["locks"] == ["pylock.toml"]


# ---- what is wrong with it


def started(bundle: Path) -> ModuleType:
    """The start script as a module that lies in the bundle."""
    spec = importlib.util.spec_from_file_location("start", ROOT / "cudnn_resolve/execution/payload_start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.HERE = str(bundle)  # type: ignore[attr-defined]
    return module


def is_whole(bundle: Path) -> bool:
    """What `apply` finds."""
    try:
        on_disk.verify(str(bundle), on_disk.files_of(str(bundle), on_disk.read_sums(str(bundle))))
    except InputError:
        return False
    return True


def starts(bundle: Path) -> bool:
    """What the start script finds."""
    module = started(bundle)
    try:
        module.verify(module.read_sums())
    except module.RefusedError:
        return False
    return True


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle of one file of each kind, and its tar file."""
    base = tmp_path_factory.mktemp("small")
    folder = base / "b"
    (folder / "wheels").mkdir(parents=True)
    content = {"pylock.toml": b"lock", "start.py": b"print()\n", "wheels/demo-1.0-py3-none-any.whl": b"PK" + bytes(700)}
    on_disk.add_to_list(str(folder), {name: on_disk.place(str(folder), name, raw) for name, raw in content.items()})
    bundle_tar.pack(str(folder), str(base / "b.tar"))
    return base


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(60))
def test_a_byte_that_is_changed_anywhere_is_found(small: Path, data: st.DataObject) -> None:
    files = sorted(path for path in (small / "b").rglob("*") if path.is_file() and path.name != ".lock")
    path = data.draw(st.sampled_from([*files, small / "b.tar"]))
    raw = path.read_bytes()
    place, change = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(1, 255))
    cut = data.draw(st.booleans())
    wrong = raw[:place] if cut else raw[:place] + bytes([raw[place] ^ change]) + raw[place + 1 :]
    path.write_bytes(wrong)
    try:
        if path.suffix == ".tar":
            with on_disk.temporary_folder(str(small)) as empty, pytest.raises(InputError, match="damaged"):
                bundle_tar.unpack(str(path), empty)
        else:
            assert not is_whole(small / "b")
            assert not starts(small / "b")
    finally:
        path.write_bytes(raw)
    assert is_whole(small / "b")
    assert starts(small / "b")


def relisted(bundle: Path, name: str) -> None:
    """Let the list say what is there now."""
    on_disk.add_to_list(str(bundle), {name: disk.digest(str(bundle / name), "sha256")})


def cut_wheel(bundle: Path) -> None:
    path = next(bundle.glob("wheels/demo*"))
    path.write_bytes(path.read_bytes()[:-7])


def missing_wheel(bundle: Path) -> None:
    next(bundle.glob("wheels/demo*")).unlink()


def linked_wheel(bundle: Path) -> None:
    path = next(bundle.glob("wheels/demo*"))
    path.rename(bundle.parent / "moved.whl")
    path.symlink_to(bundle.parent / "moved.whl")


def linked_folder(bundle: Path) -> None:
    (bundle / "wheels").rename(bundle.parent / "moved")
    (bundle / "wheels").symlink_to(bundle.parent / "moved")


def listed_outside(bundle: Path) -> None:
    (bundle / "SHA256SUMS").write_text(f"# cudnn-resolve bundle 1: sha256 of the lines below {'0' * 64}\n{'0' * 64}  ../../etc/passwd\n")


def lying_lock(bundle: Path) -> None:
    """The list is right, and lock and wheel do not agree."""
    path = next(bundle.glob("wheels/demo*"))
    write_wheel(bundle / "wheels", "demo", "1.0", {"demo/__init__.py": "raise SystemExit('hostile')"})
    relisted(bundle, f"wheels/{path.name}")


def lock_elsewhere(bundle: Path) -> None:
    text = (bundle / "pylock.toml").read_text()
    (bundle / "pylock.toml").write_text(text.replace('path = "wheels/', 'path = "../wheels/'))
    relisted(bundle, "pylock.toml")


def traversing_wheel(bundle: Path) -> None:
    """List and lock agree on a wheel that would write elsewhere."""
    path = next(bundle.glob("wheels/demo*"))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("../../../../owned.py", "")
    before = on_disk.read_sums(str(bundle))[f"wheels/{path.name}"]
    relisted(bundle, f"wheels/{path.name}")
    after = on_disk.read_sums(str(bundle))[f"wheels/{path.name}"]
    for name in ("pylock.toml", "pylock.json"):
        (bundle / name).write_text((bundle / name).read_text().replace(before, after))
        relisted(bundle, name)


@pytest.mark.parametrize(
    "spoil",
    [cut_wheel, missing_wheel, linked_wheel, linked_folder, listed_outside, lying_lock, lock_elsewhere, traversing_wheel],
    ids=lambda one: one.__name__,
)
def test_a_hostile_bundle_changes_nothing(bench: Bundling, spoil: Callable[[Path], None]) -> None:
    bundle = bench.alone()
    spoil(bundle)
    before = tree(bench.venv)

    done = bench("b", "-q")
    by_script = bench.by_script("made")

    assert done.returncode in (2, 3), done
    assert "error: " in done.stderr
    assert tree(bench.venv) == before
    if spoil is not lock_elsewhere:  # the script reads no lock
        assert by_script.returncode == 3, by_script
        assert by_script.stderr.startswith("error: ")
        assert "Traceback" not in by_script.stderr
        assert not (bench.base / "made").exists()
    assert not (bench.base / "owned.py").exists()


def test_a_wheel_that_would_fill_the_disk_is_refused(bench: Bundling, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "free_bytes", len)

    done = bench("b", "-q")

    assert done.returncode == 3
    assert "free" in done.stderr


def test_the_start_script_leaves_nothing_half_made(bench: Bundling) -> None:
    (bench.base / "made").mkdir()
    taken = bench.by_script("made")
    (bench.base / "made" / ".cudnn-resolve-unfinished").touch()  # what one that was killed leaves
    again = bench.by_script("made")
    wrong = bench.by_script("--python", "/bin/false", "other")
    nowhere = bench.by_script("--python", "/nowhere/python", "other")

    assert taken.returncode == 3
    assert "exists already" in taken.stderr
    assert again.returncode == 0, again
    assert not (bench.base / "made" / ".cudnn-resolve-unfinished").exists()
    assert (wrong.returncode, nowhere.returncode) == (3, 3)
    assert f"pylock.toml needs Python {MINOR}, which /nowhere/python is not" in nowhere.stderr
    assert not (bench.base / "other").exists()


def test_ctrl_c_ends_the_start_script_in_one_line(bench: Bundling) -> None:
    argv = ["env", "--default-signal=INT", "sh", str(bench.bundle / "start"), "made"]
    path = f"{Path(sys.base_prefix, 'bin')}:/usr/bin:/bin"
    process = subprocess.Popen(
        argv, env={"PATH": path}, cwd=bench.base, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    while not list(bench.base.glob("made/pins-*.txt")):  # then pip is run
        time.sleep(0.01)
        assert process.poll() is None
    time.sleep(0.15)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal sends it
    output, _ = process.communicate(timeout=60)

    assert (process.returncode, output) == (130, "interrupted: no environment was made\n")
    assert not (bench.base / "made").exists()


def late(bench: Bundling) -> Path:
    """Where the environment has packages: its pip refuses every one, and the lock has a wheel whose tag no pip of its age knows."""
    path = made_wheel(bench.wheels, "late", "1.0", tag=f"py3-none-manylinux_2_17_{os.uname().machine}")
    head = 'lock-version = "1.0"\ncreated-by = "a test"\n[[packages]]\nname = "late"\nversion = "1.0"\n'
    digest = disk.digest(str(path), "sha256")
    wheel = f'{{name = "{path.name}", path = "wheels/{path.name}", hashes = {{sha256 = "{digest}"}}}}'
    (bench.base / "pylock.toml").write_text(f"{head}wheels = [{wheel}]\n")
    site = next(bench.venv.glob("lib/python3*/site-packages"))
    (site / "pip").mkdir()
    (site / "pip" / "__main__.py").write_text("raise SystemExit('not a supported wheel on this platform')")
    (site / "pip" / "__init__.py").touch()
    (site / "pip-19.3.1.dist-info").mkdir()
    return site


def test_a_pip_that_does_not_know_the_tag_is_replaced_by_one_that_does(bench: Bundling) -> None:
    site = late(bench)

    done = bench("-q", "--installer", "pip")

    assert done.stdout.startswith("done: "), done
    assert (site / "late.py").exists()


def test_without_a_network_and_uv_an_environment_with_an_old_pip_is_filled_from_a_bundle(bench: Bundling) -> None:
    site = late(bench)
    assert bench.make("-o", "late", "-q").returncode == 0
    bench.alone()

    done = bench.start(*without_network(), *bench.argv, "late", "-q", "--installer", "pip")

    assert done.stdout.startswith("done: "), done
    assert (site / "late.py").exists()


# ---- a shared folder


def add_many(folder: str, first: int) -> None:
    for number in range(first, first + 25):
        name = f"wheels/demo-{number}-py3-none-any.whl"
        on_disk.add_to_list(folder, {name: on_disk.place(folder, name, str(number).encode())})


@pytest.mark.parametrize("locks", ["flock", ""], ids=["locks", "no locks"])
def test_two_writers_at_once_lose_nothing(tmp_path: Path, locks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    if not locks:
        monkeypatch.setattr(on_disk, "_LOCK_SECONDS", 0.0)
    with ProcessPoolExecutor(2) as processes:
        for future in [processes.submit(add_many, str(tmp_path), first) for first in (0, 100)]:
            future.result()

    sums = on_disk.read_sums(str(tmp_path))

    files = {f"wheels/{path.name}" for path in (tmp_path / "wheels").iterdir()}
    assert len(files) == 50
    assert sums.keys() <= files
    if locks:
        assert sums.keys() == files
    assert all(disk.digest(str(tmp_path / name), "sha256") == digest for name, digest in sums.items())


@pytest.mark.parametrize("name", ["b", "b.tar"])
def test_two_that_add_to_one_bundle_at_once_lose_nothing(bench: Bundling, name: str) -> None:
    if name == "b.tar":
        assert bench.make("-o", name, "-q").returncode == 0
    waiting = []
    for package in ("third", "fourth"):
        bench.lock((package, "1.0"), called=f"pylock.{package}.toml")
        argv = [sys.executable, "-m", "cudnn_resolve", "bundle", f"pylock.{package}.toml", "--add", "-o", name, "-q"]
        argv += ["--python-version", {"third": "3.10", "fourth": "3.11"}[package]]
        waiting.append(subprocess.Popen(argv, env={**bench.environ, "PYTHONPATH": str(ROOT)}, cwd=bench.base, stderr=subprocess.PIPE))

    said = [one.communicate()[1] for one in waiting]

    assert [one.returncode for one in waiting] == [0, 0], said
    found = json.loads(bench.make("--check", name, "--format", "json").stdout)
    assert len(found["locks"]) == 3
    assert {one["name"].split("-")[0] for one in found["files"] if one["name"].endswith(".whl")} >= {
        f"wheels/{one}" for one in ("demo", "third", "fourth")
    }
    assert found["notes"] == []


def test_a_tar_file_that_somebody_wrote_meanwhile_stays(small: Path, tmp_path: Path) -> None:
    path = tmp_path / "b.tar"
    bundle_tar.pack(str(small / "b"), str(path))
    with bundle_tar.locked_tar(str(path), lambda _: None) as there:
        theirs = path.read_bytes()
        path.unlink()
        path.write_bytes(theirs)

        with pytest.raises(WorldError, match="another process has written"):
            bundle_tar.pack(str(small / "b"), str(path), there)

    assert [one.name for one in tmp_path.iterdir()] == ["b.tar"]


def test_whoever_waits_for_a_tar_file_says_so_and_not_for_ever(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "b.tar"
    bundle_tar.pack(str(small / "b"), str(path))
    monkeypatch.setattr(bundle_tar, "_LOCK_SECONDS", 0.1)
    said: list[str] = []

    with bundle_tar.locked_tar(str(path), said.append):
        assert said == []
        with pytest.raises(WorldError, match="another process is still writing"), bundle_tar.locked_tar(str(path), said.append):
            pass

    assert [str(path) in one and "waiting for at most" in one for one in said] == [True]


def test_what_is_in_it_can_be_listed_as_cyclonedx_has_it(bench: Bundling) -> None:
    pytest.importorskip("cyclonedx", reason="the extra `sbom` brings cyclonedx-python-lib")

    assert bench.make("--add", "-o", "b", "--sbom", "-q").returncode == 0

    found = json.loads((bench.bundle / "sbom.cdx.json").read_text())
    assert found["bomFormat"] == "CycloneDX"
    assert {one["purl"] for one in found["components"]} == {"pkg:pypi/demo@1.0", "pkg:pypi/other@2.0"}
    digests = {one["hashes"][0]["content"] for one in found["components"]}
    assert digests < set(on_disk.read_sums(str(bench.bundle)).values())
