"""The apt part, by real apt-get and dpkg on a system of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from cudnn_resolve.errors import WorldError
from cudnn_resolve.execution import aptget, system_packages
from cudnn_resolve.execution.aptget import rpm_name
from cudnn_resolve.execution.journal import ARRIVING_DEBS, LEAVING_DEBS, PastApply
from cudnn_resolve.execution.recover import undo
from cudnn_resolve.execution.run import carry_out
from cudnn_resolve.execution.system_packages import keep_arriving, restore_system
from cudnn_resolve.host import disk
from cudnn_resolve.host.interrupt import InterruptError
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.host.run_tool import Tooling
from cudnn_resolve.planning.model import AptRepository
from cudnn_resolve.report.script import repository_commands
from tests.apt_world import AptWorld, missing_tools, task_for, work_on
from tests.fake_host import FakeHost
from tests.watching import watching

_NEEDS = f"needs root and {', '.join(missing_tools()) or 'nothing else'}"
pytestmark = [pytest.mark.kill, pytest.mark.skipif(bool(missing_tools()) or not disk.is_root(), reason=_NEEDS)]

OLD = "8.9.6.50-1+cuda12.2"
NEW = "8.9.7.29-1+cuda12.2"


@pytest.fixture(scope="module")
def stocked(tmp_path_factory: pytest.TempPathFactory) -> AptWorld:
    """A signed repository, made once."""
    world = AptWorld(tmp_path_factory.mktemp("stocked"))
    world.package("libcudnn8", OLD)
    world.package("libcudnn8", NEW)
    world.package("libcudnn8-dev", OLD, depends=f"libcudnn8 (= {OLD})")
    world.package("libcudnn9-cuda-12", "9.3.0.75-1")
    world.package("cuda-libraries-12-2", "12.2.2-1", depends="cuda-cudart-12-2 (>= 12.2.140)")
    world.package("cuda-cudart-12-2", "12.2.140-1")
    world.package("rival", "1.0", conflicts="libcudnn9-cuda-12")
    world.publish()
    return world


@pytest.fixture
def world(stocked: AptWorld, tmp_path: Path) -> AptWorld:
    return AptWorld(tmp_path / "apt", like=stocked)


def put(world: AptWorld, *pins: str) -> None:
    world.know()
    assert world.apt("apt-get", "update").returncode == 0
    done = world.apt("apt-get", "install", "-y", *pins)
    assert done.returncode == 0, done.stdout + done.stderr


def test_packages_come_with_what_they_need_are_held_and_go_again(world: AptWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.know()
    before = world.files()
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("cuda-libraries-12-2", "12.2.2-1"), ("libcudnn8", NEW)), work)

    assert done.status == "done", done
    assert world.installed() == {
        "cuda-cudart-12-2": "12.2.140-1 install ok installed",
        "cuda-libraries-12-2": "12.2.2-1 hold ok installed",
        "libcudnn8": f"{NEW} hold ok installed",
    }
    few = tmp_path / "few"
    few.mkdir()
    elsewhere = replace(work, host=LinuxHost(environ={**world.environ, "PATH": str(few)}))
    with pytest.raises(WorldError, match="apt-get is not on PATH any more"):
        undo(elsewhere, None)
    (few / "apt-get").symlink_to("/bin/false")
    with monkeypatch.context() as patched:
        patched.setattr(disk, "is_root", lambda: False)
        for hint in ("run it as root: there is no sudo", "run `sudo -v` first"):
            with pytest.raises(WorldError, match="needs root") as refused:
                undo(elsewhere, None)
            assert hint in (refused.value.hint or "")
            (few / "sudo").unlink(missing_ok=True)
            (few / "sudo").symlink_to("/bin/false")
    assert "libcudnn8" in world.installed()
    back = undo(work, None)
    assert (back.status, back.left) == ("undone", ())
    assert world.installed() == {}
    assert world.files() == before


def test_a_held_older_package_is_upgraded_because_it_is_named_and_downgraded_and_its_hold_comes_back(
    world: AptWorld, tmp_path: Path
) -> None:
    put(world, f"libcudnn8={OLD}")
    world.apt("apt-mark", "hold", "libcudnn8")
    work = work_on(world, tmp_path)

    assert carry_out(task_for(("libcudnn8", NEW)), work).status == "done"
    assert world.installed() == {"libcudnn8": f"{NEW} hold ok installed"}
    status = world.root / "var/lib/dpkg/status"
    now = status.read_text()
    status.write_text(now.replace(f"Version: {NEW}", f"Version: {OLD}"))
    with pytest.raises(WorldError, match="others changed the system since apply number 1: libcudnn8"):
        undo(work, None)
    status.write_text(now)
    assert carry_out(task_for(("libcudnn8", OLD)), work).status == "done"
    assert world.installed() == {"libcudnn8": f"{OLD} hold ok installed"}
    (kept,) = (tmp_path / "state").glob(f"environments/*/000002/{LEAVING_DEBS}/*.deb")
    world.package("libcudnn8", NEW, files={"usr/lib/owned.txt": "by somebody else"}, folder=kept.parent)
    assert undo(work, None).left == ()
    assert world.installed() == {"libcudnn8": f"{NEW} hold ok installed"}
    assert not (world.root / "usr/lib/owned.txt").exists()
    assert undo(work, None).left == ()
    assert world.installed() == {"libcudnn8": f"{OLD} hold ok installed"}


@pytest.mark.parametrize(
    ("pins", "task", "code"),
    [
        ((), ("libcudnn8", "8.9.9.99-1+cuda12.2"), "apt-refuses"),
        (("rival=1.0",), ("libcudnn9-cuda-12", "9.3.0.75-1"), "apt-removes"),
        ((f"libcudnn8-dev={OLD}", f"libcudnn8={OLD}"), ("libcudnn8", NEW), "apt-removes"),
    ],
    ids=["missing version", "conflict", "a dependent would go"],
)
def test_what_apt_cannot_do_without_removing_others_is_refused_before_anything_changes(
    world: AptWorld, tmp_path: Path, pins: tuple[str, ...], task: tuple[str, str], code: str
) -> None:
    put(world, *pins)
    before = (world.files(), world.installed())

    with pytest.raises(WorldError) as refused:
        carry_out(task_for(task), work_on(world, tmp_path))

    assert refused.value.code == code
    assert (world.files(), world.installed()) == before


def test_a_held_package_that_nobody_named_stays(world: AptWorld, tmp_path: Path) -> None:
    world.package("cuda-cudart-12-2", "12.2.100-1")
    world.publish()
    put(world, "cuda-cudart-12-2=12.2.100-1")
    world.apt("apt-mark", "hold", "cuda-cudart-12-2")
    before = world.installed()

    with pytest.raises(WorldError, match=r"apt-get refuses|held"):
        carry_out(task_for(("cuda-libraries-12-2", "12.2.2-1")), work_on(world, tmp_path))

    assert world.installed() == before


def test_an_unknown_repository_is_made_known_by_its_key_and_forgotten_again(world: AptWorld, tmp_path: Path) -> None:
    repository = world.unknown()
    before = world.files()
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("libcudnn8", NEW), repositories=(repository,)), work)

    assert done.status == "done", done
    assert world.installed() == {"libcudnn8": f"{NEW} hold ok installed"}
    assert (world.root / "etc/apt/sources.list.d" / repository.list_name).read_text() == repository.entry(str(world.keyring))
    assert undo(work, None).left == ()
    assert (world.files(), world.installed()) == (before, {})


def test_a_repository_that_the_system_knows_is_left_as_it_is(world: AptWorld, tmp_path: Path) -> None:
    world.know()
    mine = world.root / "etc/apt/sources.list.d/cuda-standin.list"
    repository = world.unknown()
    mine.write_text(f"deb [signed-by={world.keyring}] {repository.url} /\n")
    before = {name: sum_ for name, sum_ in world.files().items() if name.startswith("etc/apt") or "keyrings" in name}

    assert carry_out(task_for(("libcudnn8", NEW), repositories=(repository,)), work_on(world, tmp_path)).status == "done"

    assert {name: world.files().get(name) for name in before} == before
    assert not (mine.parent / repository.list_name).exists()


def test_the_old_list_without_a_key_makes_room_and_comes_back(world: AptWorld, tmp_path: Path) -> None:
    repository = world.unknown()
    old = world.root / "etc/apt/sources.list.d/cuda.list"
    old.write_text("deb https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2204/x86_64/ /\n")
    world.keyring.write_bytes(b"an older key")
    work = work_on(world, tmp_path)
    mine = old.with_name(f"{old.name}.disabled-by-cudnn-resolve")
    for path in (mine, mine.with_name(f"{mine.name}-1")):
        path.write_text("of somebody else")
    before = world.files()

    done = carry_out(task_for(("libcudnn8", NEW), repositories=(repository,)), work)

    assert done.status == "done", done
    assert not old.exists()
    assert world.keyring.read_bytes() != b"an older key"
    old.write_text("deb https://repo.example/ mine main\n")
    with pytest.raises(WorldError, match=r"others changed the system since apply number 1: .*cuda\.list"):
        undo(work, None)
    old.unlink()
    assert undo(work, None).left == ()
    assert world.files() == before


def test_a_repository_whose_key_is_unknown_is_refused(world: AptWorld, tmp_path: Path) -> None:
    world.know()
    world.publish(world.make_key("somebody else"))

    with pytest.raises(WorldError) as refused:
        carry_out(task_for(("libcudnn8", NEW)), work_on(world, tmp_path))

    assert refused.value.code == "apt-key"
    assert world.installed() == {}


def test_a_repository_that_offers_another_key_is_refused(world: AptWorld, tmp_path: Path) -> None:
    """Signed by somebody else, with that key beside it: apt itself would be content."""
    foreign = world.make_key("somebody else")
    world.publish(foreign)
    before = world.files()

    with pytest.raises(WorldError, match="offers another key") as refused:
        carry_out(task_for(("libcudnn8", NEW), repositories=(world.unknown(foreign),)), work_on(world, tmp_path))

    assert world.key in (refused.value.hint or "")
    assert foreign in refused.value.message
    assert (world.files(), world.installed()) == (before, {})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fingerprint": ""}, "repository-key"),
        ({"fingerprint": "3BF863CC"}, "repository-key"),
        ({"url": "https://repo.example/ [trusted=yes] x/"}, "repository"),
        ({"url": "http://repo.example/"}, "repository"),
        ({"name": "../evil"}, "repository"),
        ({"key_url": "http://repo.example/standin.pub"}, "repository-key"),
    ],
)
def test_a_repository_that_could_mean_something_else_to_apt_is_refused(
    world: AptWorld, tmp_path: Path, change: dict[str, str], code: str
) -> None:
    before = world.files()

    with pytest.raises(WorldError) as refused:
        carry_out(task_for(("libcudnn8", NEW), repositories=(replace(world.unknown(), **change),)), work_on(world, tmp_path))

    assert refused.value.code == code
    assert world.files() == before


def test_what_else_lies_beside_the_key_is_not_trusted(world: AptWorld, tmp_path: Path) -> None:
    """Two keys in the file, and packages signed by the one that the matrix does not name."""
    foreign = world.make_key("somebody else")
    repository = world.unknown()
    published = world.repository / "standin.pub"
    ours = published.read_bytes()
    world.unknown(foreign)
    published.write_bytes(ours + published.read_bytes())
    world.publish(foreign)
    before = world.files()

    done = carry_out(task_for(("libcudnn8", NEW), repositories=(repository,)), work_on(world, tmp_path))

    assert done.trouble is not None
    assert (done.status, done.trouble.code, done.left) == ("reverted", "apt-key", ())
    assert (world.files(), world.installed()) == (before, {})


def test_scripts_make_the_repository_known_by_that_key_alone(world: AptWorld) -> None:
    repository = world.unknown()
    text = (
        " && ".join(repository_commands(repository)).replace("/usr/share", f"{world.root}/usr/share").replace(" /etc", f" {world.root}/etc")
    )

    def run() -> int:
        return subprocess.run(["sh", "-c", text], env=world.environ, capture_output=True, check=False).returncode

    ours = (world.repository / "standin.pub").read_bytes()
    world.unknown(world.make_key("somebody else"))
    foreign = (world.repository / "standin.pub").read_bytes()
    for published in (foreign, ours + foreign, b""):
        (world.repository / "standin.pub").write_bytes(published)
        assert run() != 0
        assert not world.keyring.exists()
    (world.repository / "standin.pub").write_bytes(ours)
    assert run() == 0
    assert world.apt("apt-get", "update").returncode == 0
    assert "libcudnn8" in world.apt("apt-cache", "policy", "libcudnn8").stdout


def test_an_installation_that_fails_is_put_back(world: AptWorld, tmp_path: Path) -> None:
    put(world, f"libcudnn8={OLD}")
    blocked = world.package("libcudnn9-cuda-12", "9.4.0.1-1", files={"usr/lib/x86_64-linux-gnu/libcudnn8.txt": "not mine"})
    world.publish()
    before = (world.files(), world.installed())
    work = work_on(world, tmp_path)

    done = carry_out(task_for(("libcudnn9-cuda-12", "9.4.0.1-1")), work)

    assert blocked.exists()
    assert (done.status, done.exit_code, done.left) == ("reverted", 4, ())
    assert (world.files(), world.installed()) == before


def test_who_has_no_root_gets_the_commands() -> None:
    place = "https://repo.example/cuda/repos/ubuntu2204/x86_64/"
    repository = AptRepository(name="ubuntu2204", url=place, key_url=f"{place}3bf863cc.pub", fingerprint="A" * 40)
    keyring = "/usr/share/keyrings/cuda-archive-keyring.gpg"

    assert aptget.administrator_commands(task_for(("libcudnn8", NEW), repositories=(repository,))) == [
        f"curl -fsSL {place}3bf863cc.pub | gpg --dearmor | sudo tee {keyring} >/dev/null",
        f"gpg --show-keys {keyring}  # must show {'A' * 40}",
        f"echo 'deb [signed-by={keyring}] {place} /' | sudo tee /etc/apt/sources.list.d/cuda-ubuntu2204-x86_64.list",
        "sudo apt-get update",
        f"sudo apt-get install -y --no-install-recommends libcudnn8={NEW}",
        "sudo apt-mark hold libcudnn8",
    ]


def test_rpm_systems_get_their_names() -> None:
    assert rpm_name("libcudnn8-dev", NEW) == "libcudnn8-devel-8.9.7.29-1.cuda12.2"
    assert rpm_name("cuda-libraries-12-2", "12.2.2-1") == "cuda-libraries-12-2-12.2.2-1"


@pytest.mark.parametrize("at", ["keyring", "change", "known", "apt", "installed"])
def test_an_interruption_at_any_record_is_put_back(world: AptWorld, tmp_path: Path, at: str) -> None:
    put(world, f"libcudnn8={OLD}")
    (world.root / "etc/apt/sources.list.d/cuda-standin.list").unlink()
    world.keyring.write_bytes(b"an older key")
    repository = world.unknown()
    before = (world.files(), world.installed())

    def stop(kind: str) -> None:
        if kind == at:
            raise InterruptError("SIGTERM")

    with watching(stop):
        done = carry_out(task_for(("libcudnn8", NEW), repositories=(repository,)), work_on(world, tmp_path))

    assert done.status == ("interrupted" if at == "keyring" else "reverted"), done
    assert done.left == ()
    assert (world.files(), world.installed()) == before


def test_what_dpkg_left_half_done_is_put_back(world: AptWorld, tmp_path: Path) -> None:
    put(world, f"libcudnn8={OLD}")
    assert world.apt("apt-mark", "auto", "libcudnn8").returncode == 0
    before = (world.files(), world.installed(), world.automatic())
    status, states = world.root / "var/lib/dpkg/status", world.root / "var/lib/apt/extended_states"
    earlier = states.parent / "extended_states.Z9z9Z9"
    earlier.write_text("half written, but not by us")

    def torn(kind: str) -> None:
        if kind == "saved":
            stanzas = (
                status.read_text().replace("install ok installed", "install ok unpacked").replace("hold ok installed", "hold ok unpacked")
            )
            status.write_text(stanzas)
            (states.parent / "extended_states.a1B2c3").write_text("half written")
            raise InterruptError("SIGTERM")

    with watching(torn):
        done = carry_out(task_for(("libcudnn8", NEW), ("libcudnn9-cuda-12", "9.3.0.75-1")), work_on(world, tmp_path))

    assert (done.status, done.left) == ("reverted", ())
    assert (world.files(), world.installed(), world.automatic()) == before
    assert [path.name for path in states.parent.glob("extended_states*")].count(earlier.name) == 1
    assert len(list(states.parent.glob("extended_states*"))) == 2


def test_files_of_a_dpkg_that_was_killed_while_it_unpacked_are_gone(world: AptWorld, tmp_path: Path) -> None:
    def files(version: str, *names: str) -> dict[str, str]:
        return {f"usr/lib/x86_64-linux-gnu/{one}": f"{one} {version}" for one in names}

    world.package("libcudnn9-cuda-12", "9.4.0.1-1", files=files("9.4", "e", "f", "g"))
    world.package("libcudnn8", "8.9.0-1", files=files("8.9.0", "b", "c", "d"))
    world.package("libcudnn8", "8.9.1-1", files=files("8.9.1", "a", "b", "c"))
    world.publish()
    work = work_on(world, tmp_path)

    def swap(kind: str) -> None:
        for kept in (tmp_path / "state").rglob(f"{ARRIVING_DEBS}/libcudnn9*.deb") if kind == "apt" else ():
            kept.unlink()
            kept.write_bytes(b"of somebody else")

    for here, name, version, renamed in (
        ("8.9.0-1", "libcudnn9-cuda-12", "9.4.0.1-1", 1),  # fetched anew
        ("8.9.0-1", "libcudnn8", "8.9.1-1", 2),
        ("8.9.1-1", "libcudnn8", "8.9.0-1", 0),
    ):
        put(world, f"libcudnn8={here}")
        former = (world.files(), world.installed())
        world.tear(name, renamed=renamed)

        with watching(swap):
            done = carry_out(task_for((name, version)), work)

        assert not (world.base / "bin/dpkg-deb").exists()
        assert (done.status, done.left) == ("reverted", ())
        assert (world.files(), world.installed()) == former
        assert not list((tmp_path / "state").rglob("*.deb"))


def test_a_journal_whose_words_for_apt_are_none_is_not_followed(world: AptWorld, tmp_path: Path) -> None:
    put(world, f"libcudnn8={OLD}")
    before = (world.files(), world.installed())
    aside = "/etc/hostname.disabled-by-cudnn-resolve-1"
    for kind, said in (
        ("keyring", {"before": None, "moved": [5]}),
        ("keyring", {"before": None, "moved": ["/etc/hostname"]}),
        ("keyring", {"moved": [["/etc/hostname", aside]]}),
        ("keyring", {"moved": [], "written": ["/etc/hostname"]}),
        ("keyring", {"moved": [], "written": 5}),
        ("apt", {"packages": [["libcudnn8; id", "1", None]], "along": {}, "held": []}),
        ("apt", {"packages": [["libcudnn8", 5, None]], "along": {}, "held": []}),
        ("apt", {"packages": [["libcudnn8", "--purge", None]], "along": {}, "held": []}),
        ("apt", {"packages": [], "along": 5, "held": []}),
    ):
        past = PastApply(folder=str(tmp_path), id=1, state="changing", records=({"kind": kind, **said},))

        left = restore_system(past, LinuxHost(environ=world.environ), Tooling(log=str(tmp_path / "log.txt")))

        assert ["was modified" in one for one in left] == [True], (said, left)
    assert (world.files(), world.installed()) == before


def test_what_comes_is_linked_from_the_cache_of_apt_and_fetched_where_it_is_not_there(world: AptWorld, tmp_path: Path) -> None:
    put(world)
    name = f"libcudnn8_{NEW}_amd64.deb"
    cached = world.root / "var/cache/apt/archives" / name
    cached.write_bytes((world.repository / name).read_bytes())
    apt = aptget.find_apt(LinuxHost(environ=world.environ), Tooling(log=str(tmp_path / "log.txt")))
    assert apt is not None

    keep_arriving(apt, {"libcudnn8": NEW, "libcudnn9-cuda-12": "9.3.0.75-1"}, str(tmp_path))

    assert (tmp_path / ARRIVING_DEBS / name).samefile(cached)
    assert (tmp_path / ARRIVING_DEBS / "libcudnn9-cuda-12_9.3.0.75-1_amd64.deb").is_file()


@pytest.mark.parametrize(("free", "kept"), [(None, 2), (system_packages.RESERVE_BYTES, 0)])
def test_where_nothing_can_be_linked_it_is_copied_if_there_is_room(
    world: AptWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int | None, kept: int
) -> None:
    put(world)
    name = f"libcudnn8_{NEW}_amd64.deb"
    (world.root / "var/cache/apt/archives" / name).write_bytes((world.repository / name).read_bytes())
    refusing = world.base / "bin" / "cp"
    refusing.parent.mkdir(exist_ok=True)
    refusing.write_text('#!/bin/sh\ncase "$*" in *--link*) exit 1 ;; esac\nexec /bin/cp "$@"\n')
    refusing.chmod(0o755)
    environ = {**world.environ, "PATH": f"{refusing.parent}:{world.environ['PATH']}"}
    apt = aptget.find_apt(LinuxHost(environ=environ), Tooling(log=str(tmp_path / "log.txt")))
    assert apt is not None
    if free is not None:
        monkeypatch.setattr(disk, "free_bytes", lambda _: free)

    keep_arriving(apt, {"libcudnn8": NEW, "libcudnn9-cuda-12": "9.3.0.75-1"}, str(tmp_path))

    assert len(list((tmp_path / ARRIVING_DEBS).iterdir())) == kept


def test_a_user_without_root_is_told_what_to_hand_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "is_root", lambda: False)
    host = FakeHost(executables=("/usr/bin/apt-get",), environ={"PATH": "/usr/bin"})

    with pytest.raises(WorldError, match="need root") as refused:
        aptget.require_apt(task_for(("libcudnn8", NEW)), host)

    assert refused.value.hint is not None
    assert f"sudo apt-get install -y --no-install-recommends libcudnn8={NEW}" in refused.value.hint
    system = {"/etc/os-release": 'ID="rocky"\nVERSION_ID="9.4"\n'}
    rpm = FakeHost(system, executables=("/usr/bin/dnf",), environ={"PATH": "/usr/bin"})
    with pytest.raises(WorldError, match="there is no apt-get") as other:
        aptget.require_apt(task_for(("libcudnn8", NEW)), rpm)
    for words in ("sudo dnf install libcudnn8-8.9.7.29-1.cuda12.2", "/etc/yum.repos.d/cuda-rhel9.repo "):
        assert words in (other.value.hint or "")
