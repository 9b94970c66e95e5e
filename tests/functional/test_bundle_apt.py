"""Packages of the system in a bundle, by real apt-get and dpkg on a system of its own: signed from the repository to the disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudnn_resolve.host import bundle as on_disk
from cudnn_resolve.host import disk
from tests.apt_world import AptWorld, missing_tools
from tests.functional.test_apply_cli import Bench
from tests.program import Done, run

_NEEDS = f"needs root and {', '.join(missing_tools()) or 'nothing else'}"
pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(bool(missing_tools()) or not disk.is_root() or os.uname().machine != "x86_64", reason=_NEEDS),
]

CUDNN = "8.9.7.29-1+cuda12.2"
INSIDE = "standin-x86_64"


class Bundling(Bench):
    """A lock with packages of the system, the repository that has them, and a system of its own to install them in."""

    def __init__(self, base: Path, world: AptWorld) -> None:
        super().__init__(base)
        self.world = world
        self.tables = base / "tables"
        (self.tables / "apt").mkdir(parents=True)
        world.unknown()
        (self.tables / "apt/repository.toml").write_text(f"""origin = "authored"
[[repository]]
os = "standin1"
name = "standin"
arch = "x86_64"
url = "{world.repository.as_uri()}/"
key = "{world.key}"
key_file = "standin.pub"
source = ["test"]
[source.test]
where = "https://example.org/"
read = 2026-11-22
""")
        lock = self.lock(("demo", "1.0"))
        pins = ", ".join(
            f'{{name = "{name}", version = "{version}", repository = "standin"}}'
            for name, version in (("libcudnn8-dev", CUDNN), ("libcudnn8", CUDNN), ("cuda-libraries-12-2", "12.2.2-1"))
        )
        lock.write_text(f"""{lock.read_text()}
[tool.cudnn-resolve]
schema = 1
targets = ["demo"]
python = "{sys.version_info[0]}.{sys.version_info[1]}"
platforms = ["linux_x86_64"]
frameworks = []
apt = [{pins}]
""")

    @property
    def environ(self) -> dict[str, str]:
        return {**super().environ, "APT_CONFIG": str(self.world.config), "PATH": f"{super().environ['PATH']}:/usr/sbin:/sbin"}

    def say(self, *words: str) -> Done:
        return run(*words, environ=self.environ, cwd=self.base)

    def make(self) -> Path:
        """The bundle, where its repository is not any more."""
        done = self.say("bundle", "-o", "b", "-q", "--matrix", str(self.tables))
        assert done.returncode == 0, done
        shutil.rmtree(self.world.repository)
        shutil.rmtree(self.wheels)
        (self.base / "pylock.toml").unlink()
        return self.base / "b"

    def apply(self, *words: str) -> Done:
        return self("b", "-q", "--no-validate", "--matrix", str(self.tables), *words)

    def relisted(self, name: str) -> None:
        """Let the list say what is there now."""
        on_disk.add_to_list(str(self.base / "b"), {name: disk.digest(str(self.base / "b" / name), "sha256")})


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> AptWorld:
    """A signed repository, made once; what its packages need of others is not in it."""
    world = AptWorld(tmp_path_factory.mktemp("stocked"))
    world.package("libcudnn8", CUDNN)
    world.package("libcudnn8", "8.9.6.50-1+cuda12.2")
    world.package("libcudnn8-dev", CUDNN, depends=f"libcudnn8 (= {CUDNN})")
    world.package("cuda-libraries-12-2", "12.2.2-1", depends="cuda-cudart-12-2 (>= 12.2.140), libc6 (>= 2.17)")
    world.package("cuda-cudart-12-2", "12.2.140-1", files={f"usr/lib/x86_64-linux-gnu/{one}": one for one in "abc"})
    world.package("libcudnn9-cuda-12", "9.3.0.75-1")
    world.package("libc6", "2.36", folder=world.base / "of the system")
    world.publish()
    return world


@pytest.fixture
def bench(stocked: AptWorld, tmp_path: Path) -> Bundling:
    world = AptWorld(tmp_path / "apt", like=stocked)
    (libc,) = (stocked.base / "of the system").iterdir()
    assert world.apt("dpkg", f"--root={world.root}", "--force-not-root", "--log=/dev/null", "-i", str(libc)).returncode == 0
    (tmp_path / "bench").mkdir()
    return Bundling(tmp_path / "bench", world)


def test_packages_of_the_system_come_out_of_the_bundle_and_go_again(bench: Bundling) -> None:
    bundle = bench.make()
    # a list of the system that nobody answers: it is not asked
    (bench.world.root / "etc/apt/sources.list.d/other.list").write_text("deb http://127.0.0.1:9/ubuntu jammy main\n")
    before, files = bench.world.installed(), bench.world.files()

    done = bench.apply()

    assert done.stdout.startswith("done: "), done
    assert bench.world.installed() == {
        **before,
        "cuda-cudart-12-2": "12.2.140-1 install ok installed",
        "cuda-libraries-12-2": "12.2.2-1 hold ok installed",
        "libcudnn8": f"{CUDNN} hold ok installed",
        "libcudnn8-dev": f"{CUDNN} hold ok installed",
    }
    assert {path.name for path in (bundle / INSIDE).glob("*.deb")} == {
        f"libcudnn8_{CUDNN}_amd64.deb",
        f"libcudnn8-dev_{CUDNN}_amd64.deb",
        "cuda-libraries-12-2_12.2.2-1_amd64.deb",
        "cuda-cudart-12-2_12.2.140-1_amd64.deb",
    }
    assert {name: one for name, one in bench.world.files().items() if name.startswith("etc/") or "keyrings" in name} == {
        name: one for name, one in files.items() if name.startswith("etc/") or "keyrings" in name
    }
    assert bench("--undo", "-q").stdout.startswith("undone: ")
    assert bench.world.installed() == before
    assert bench.world.files() == files


def test_a_shared_folder_keeps_packages_of_the_system_too(bench: Bundling) -> None:
    before = bench.world.installed()
    words = ("pylock.toml", "-q", "--no-validate", "--matrix", str(bench.tables), "--bundle-dir", "share")

    first = bench(*words)

    assert first.stdout.startswith("done: "), first
    share = bench.base / "share"
    assert (share / INSIDE / f"libcudnn8_{CUDNN}_amd64.deb").is_file()
    assert (share / INSIDE / "cuda-cudart-12-2_12.2.140-1_amd64.deb").is_file(), "what they need comes along"
    assert json.loads(bench.say("bundle", "--check", "share", "--format", "json").stdout)["notes"] == []
    assert bench("--undo", "-q").stdout.startswith("undone: ")
    assert bench.world.installed() == before
    kept = {path: path.stat().st_ino for path in (share / INSIDE).iterdir()}
    shutil.rmtree(bench.world.repository)

    second = bench(*words)

    assert second.stdout.startswith("done: "), second
    assert bench.world.installed()["libcudnn8"] == f"{CUDNN} hold ok installed"
    assert {path: path.stat().st_ino for path in (share / INSIDE).iterdir()} == kept, "nothing was brought again"


def test_a_damaged_package_of_a_shared_folder_is_brought_again(bench: Bundling) -> None:
    words = ("pylock.toml", "-q", "--no-validate", "--matrix", str(bench.tables), "--bundle-dir", "share")
    assert bench(*words).stdout.startswith("done: ")
    assert bench("--undo", "-q").stdout.startswith("undone: ")
    deb = bench.base / "share" / INSIDE / f"libcudnn8_{CUDNN}_amd64.deb"
    whole = deb.read_bytes()
    deb.write_bytes(bytes([*whole[:-1], whole[-1] ^ 1]))

    again = bench(*words)

    assert again.stdout.startswith("done: "), again
    assert deb.read_bytes() == whole


def test_a_list_of_what_is_in_it_has_the_packages_of_the_system(bench: Bundling) -> None:
    pytest.importorskip("cyclonedx", reason="the extra `sbom` brings cyclonedx-python-lib")

    assert bench.say("bundle", "-o", "b", "-q", "--sbom", "--matrix", str(bench.tables)).returncode == 0

    found = {one["purl"]: one for one in json.loads((bench.base / "b/sbom.cdx.json").read_text())["components"]}
    assert found.keys() >= {"pkg:pypi/demo@1.0", f"pkg:deb/libcudnn8@{CUDNN}?arch=amd64".replace("+", "%2B")}
    digests = {one["hashes"][0]["content"] for one in found.values()}
    assert digests < set(on_disk.read_sums(str(bench.base / "b")).values())


def test_a_kill_while_they_are_unpacked_leaves_the_system_as_it_was(bench: Bundling) -> None:
    bench.make()
    before, files = bench.world.installed(), bench.world.files()
    bench.world.tear("cuda-cudart-12-2", renamed=1)

    done = bench.apply()

    assert not (bench.world.base / "bin/dpkg-deb").exists()
    assert done.returncode == 4, done
    assert (bench.world.installed(), bench.world.files()) == (before, files)
    assert not list(bench.venv.glob("lib/python3*/site-packages/demo"))
    assert bench.apply().stdout.startswith("done: ")


def forged_package(bench: Bundling) -> None:
    """The list of the bundle is right, and the signed list is not about this file."""
    path = f"{INSIDE}/libcudnn8_{CUDNN}_amd64.deb"
    bench.world.package("libcudnn8", CUDNN, files={"usr/lib/owned.txt": "owned"}, folder=bench.base / "b" / INSIDE)
    bench.relisted(path)


def forged_list(bench: Bundling) -> None:
    """The list names the forged file, and nobody signed it so."""
    forged_package(bench)
    text = bench.base / "b" / INSIDE / "Packages"
    text.write_text(text.read_text().replace("Size: ", "Size: 1"))
    bench.relisted(f"{INSIDE}/Packages")


def foreign_key(bench: Bundling) -> None:
    """All agrees, signed by a key that the tables do not know, which lies beside it."""
    place, foreign = bench.base / "b" / INSIDE, bench.world.make_key("somebody else")
    bench.world.repository = place
    forged_package(bench)
    (place / "InRelease").unlink()
    bench.world.publish(foreign)
    bench.world.unknown(foreign)
    for name in ("InRelease", "Packages", "Packages.gz", "standin.pub"):
        bench.relisted(f"{INSIDE}/{name}")


@pytest.mark.parametrize("spoil", [forged_package, forged_list, foreign_key], ids=lambda one: one.__name__)
def test_packages_that_nobody_signed_are_not_installed(bench: Bundling, spoil: Callable[[Bundling], None]) -> None:
    bench.make()
    spoil(bench)
    before, files = bench.world.installed(), bench.world.files()

    done = bench.apply()

    assert done.returncode in (3, 4), done
    assert (bench.world.installed(), bench.world.files()) == (before, files)
    assert not list(bench.venv.glob("lib/python3*/site-packages/demo"))


def test_a_byte_that_is_changed_in_a_package_is_found_before_anything_changes(bench: Bundling) -> None:
    path = next((bench.make() / INSIDE).glob("cuda-cudart*.deb"))
    raw = path.read_bytes()
    path.write_bytes(raw[:-9] + bytes([raw[-9] ^ 1]) + raw[-8:])

    done = bench.apply()

    assert done.returncode == 2, done
    assert "cuda-cudart-12-2_12.2.140-1_amd64.deb does not match" in done.stderr


def test_a_repository_that_is_signed_by_another_key_gives_no_bundle(bench: Bundling) -> None:
    bench.world.publish(bench.world.make_key("somebody else"))

    done = bench.say("bundle", "-o", "b", "-q", "--matrix", str(bench.tables))

    assert done.returncode == 3, done
    assert not (bench.base / "b/SHA256SUMS").exists()


def test_a_package_that_the_repository_has_no_more_keeps_a_bundle_from_being_extended(bench: Bundling) -> None:
    words = ("bundle", "--add", "-o", "b", "-q", "--matrix", str(bench.tables))
    assert bench.say(words[0], *words[2:]).returncode == 0
    assert bench.say(*words).returncode == 0
    before = (bench.base / "b" / INSIDE / "Packages").read_bytes()
    next(bench.world.repository.glob("cuda-cudart*")).unlink()
    bench.world.package("cuda-cudart-12-2", "12.2.141-1")
    bench.world.publish()

    done = bench.say(*words)

    assert done.returncode == 2, done
    assert "cuda-cudart-12-2_12.2.140-1_amd64.deb, which the repository no longer lists" in " ".join(done.stderr.split())
    assert (bench.base / "b" / INSIDE / "Packages").read_bytes() == before
    assert bench.say("bundle", "--check", "b").returncode == 0


def test_without_asking_anybody_a_bundle_says_what_it_lacks(bench: Bundling) -> None:
    done = bench.say("bundle", "-o", "b", "--offline", "--format", "json", "--matrix", str(bench.tables))

    (note,) = json.loads(done.stdout)["notes"]
    assert note.startswith("system packages are not in the bundle (with --offline)")
    assert not (bench.base / "b" / INSIDE).exists()


def test_the_start_script_installs_them_where_it_may(bench: Bundling) -> None:
    bundle = bench.make()
    before = bench.world.installed()

    few = bench.base / "few"
    few.mkdir()
    for name in ("sh", "dirname"):
        (few / name).symlink_to(shutil.which(name) or "")

    def start(folder: str, *path: str) -> subprocess.CompletedProcess[str]:
        environ = {"PATH": ":".join((str(Path(sys.base_prefix, "bin")), *path)), "APT_CONFIG": str(bench.world.config)}
        argv = ["/bin/sh", str(bundle / "start"), str(bench.base / folder)]
        return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)

    told = start("told", str(few))
    assert bench.world.installed() == before
    done = start("made", "/usr/bin", "/bin", "/usr/sbin", "/sbin")

    assert told.returncode == 0, told
    assert f"as root: apt-get install -y --no-install-recommends {bundle}/{INSIDE}/" in told.stdout
    assert done.returncode == 0, done
    assert "cuda-cudart-12-2=12.2.140-1" in done.stdout
    names = set(bench.world.installed()) - set(before)
    assert names == {"libcudnn8", "libcudnn8-dev", "cuda-libraries-12-2", "cuda-cudart-12-2"}
