"""The target interpreter and its environment, asked of real interpreters from 3.6 on, and of things that are none."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pytest

from cudnn_resolve.errors import CudnnResolveError, UsageError, WorldError
from cudnn_resolve.host.linux import LinuxHost
from cudnn_resolve.probe import python
from cudnn_resolve.probe.python import TargetEnvironment, ask_python, choose_python
from tests.functional.interpreters import interpreters, make_environment, site_packages

VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13")


def target(wanted: str | None, **environ: str) -> TargetEnvironment:
    host = LinuxHost(environ={**os.environ, **environ})
    path, how = choose_python(host, wanted)
    return ask_python(host, path, how)


def script(folder: Path, text: str, *, executable: bool = True) -> str:
    file = folder / "python"
    file.write_text(text)
    file.chmod(0o755 if executable else 0o644)
    return str(file)


def refusal(path: str) -> CudnnResolveError:
    with pytest.raises(CudnnResolveError) as raised:
        target(path)
    return raised.value


def install(folder: Path, name: str, version: str, *requires: str) -> None:
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n\nlong description\n" * 50)


def test_there_is_an_interpreter_to_ask() -> None:
    assert interpreters()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_empty_environment_of_any_python_tells_what_it_is(version: str, tmp_path: Path) -> None:
    path = make_environment(version, tmp_path / "venv")
    install(site_packages(tmp_path / "venv"), "Nvidia.cuDNN_cu12", "9.1.0.70", "nvidia-cublas-cu12")

    found = target(path)

    assert found.python.version is not None
    assert found.python.version.startswith(f"{version}.")
    assert found.python.path == path
    assert found.prefix == str(tmp_path / "venv")
    assert found.python.implementation == "cpython"
    assert (found.python.externally_managed, found.python.free_threaded, found.system) == (False, False, "linux")
    assert found.arch == os.uname().machine
    assert found.site_packages == (str(site_packages(tmp_path / "venv")),)
    assert [(one.name, one.version, one.requires) for one in found.distributions] == [
        ("nvidia-cudnn-cu12", "9.1.0.70", ("nvidia-cublas-cu12",))
    ]


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.13"])
def test_the_whole_import_path_counts_in_its_order(version: str, tmp_path: Path) -> None:
    path = make_environment(version, tmp_path / "venv", "--system-site-packages")
    own = site_packages(tmp_path / "venv")
    user = tmp_path / f"home/.local/lib/python{version}/site-packages"
    for number, folder in enumerate((tmp_path / "first", user, own, tmp_path / "editable")):
        install(folder, "torch", f"2.{number}")
        install(folder, f"only-{number}", "1.0")
    (own / "project.pth").write_text(f"{tmp_path}/editable\n{tmp_path}/gone\n")

    found = target(path, PYTHONPATH=f"{tmp_path}/first:{tmp_path}/gone", HOME=str(tmp_path / "home"))

    versions = {one.name: one.version for one in found.distributions}
    assert versions["torch"] == "2.0"
    assert {"only-0", "only-1", "only-2", "only-3"} <= versions.keys()
    expected = [str(folder) for folder in (tmp_path / "first", user, own, tmp_path / "editable")]
    assert [folder for folder in found.site_packages if folder in expected] == expected


@pytest.mark.parametrize("version", ["3.6", "3.13"])
def test_a_closed_environment_does_not_see_the_users_packages(version: str, tmp_path: Path) -> None:
    path = make_environment(version, tmp_path / "venv")
    install(tmp_path / f"home/.local/lib/python{version}/site-packages", "torch", "2.6.0")

    assert target(path, HOME=str(tmp_path / "home")).distributions == ()


def test_the_running_interpreter_is_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a checkout may have a ./.venv of another Python
    found = target(None)

    assert found.python.path == sys.executable
    assert "pytest" in {one.name for one in found.distributions}


@pytest.mark.slow
def test_the_active_environment_is_meant_where_there_is_one(tmp_path: Path) -> None:
    make_environment(f"{sys.version_info[0]}.{sys.version_info[1]}", tmp_path / "venv")

    assert target(None, VIRTUAL_ENV=str(tmp_path / "venv")).prefix == str(tmp_path / "venv")
    assert target(str(tmp_path / "venv")).prefix == str(tmp_path / "venv")


@pytest.mark.parametrize("version", ["3.6", "3.11"])
def test_noise_around_the_answer_does_no_harm(version: str, tmp_path: Path) -> None:
    path = make_environment(version, tmp_path / "venv")
    noise = "import sys, atexit; print('{'); print('cudnn-resolve-answer'); sys.stderr.write('x'); atexit.register(print, 'bye')\n"
    (site_packages(tmp_path / "venv") / "noise.pth").write_text(noise)

    assert target(path).prefix == str(tmp_path / "venv")


@pytest.mark.slow
def test_a_path_in_another_alphabet_is_read_in_any_locale(tmp_path: Path) -> None:
    for version in [one for one in ("3.6", "3.11") if one in interpreters()]:
        folder = tmp_path / f"Übung-{version}"
        path = make_environment(version, folder)
        install(site_packages(folder), "torch", "2.6.0")

        found = target(path, LANG="C")

        assert found.prefix == str(folder)
        assert found.distributions[0].location == str(site_packages(folder))


def test_an_externally_managed_interpreter_says_so(tmp_path: Path) -> None:
    """A stand-in for a distribution's Python: this one, told that its standard library lies beside the marker."""
    (tmp_path / "EXTERNALLY-MANAGED").write_text("[externally-managed]\n")
    lie = f"import os, sys; os.__file__ = {str(tmp_path / 'os.py')!r}; sys.base_prefix = sys.prefix"
    payload = Path(python.__file__).with_name("payload_python.py")
    code = f"{lie}; import runpy; sys.argv = ['x']; runpy.run_path({str(payload)!r}, run_name='__main__')"

    found = target(script(tmp_path, f"#!/bin/sh\nexec {sys.executable} -I -c {json.dumps(code)}\n"))

    assert found.python.externally_managed is True


def test_a_wrapper_may_set_where_the_loader_searches(tmp_path: Path) -> None:
    path = script(tmp_path, f'#!/bin/sh\nLD_LIBRARY_PATH=/opt/a:/opt/b exec {sys.executable} "$@"\n')

    found = target(path, LD_LIBRARY_PATH="/opt/z")

    assert found.ld_library_path == ("/opt/a", "/opt/b")
    assert found.python.path == path


@pytest.mark.slow
def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python, "TIMEOUT_SECONDS", 0.5)
    before = time.monotonic()

    refused = refusal(script(tmp_path, "#!/bin/sh\nsleep 60\n"))

    assert (type(refused), refused.code) == (WorldError, "python-hangs")
    assert time.monotonic() - before < 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("#!/bin/sh\nkill -SEGV $$\n", "python-crashes"),
        ("#!/bin/sh\necho Hello\n", "python-unusable"),
        ("#!/bin/sh\nwhile :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done\n", "python-unusable"),
        ("#!/bin/sh\necho 'cudnn-resolve-answer {}'\n", "python-unusable"),
        ("#!/bin/sh\necho 'python 2.7'\n", "python-unusable"),
        ("no program", "python-not-executable"),
    ],
)
def test_what_is_no_interpreter_is_refused(tmp_path: Path, text: str, code: str) -> None:
    assert refusal(script(tmp_path, text)).code == code


def test_a_file_that_may_not_be_executed_is_refused(tmp_path: Path) -> None:
    refused = refusal(script(tmp_path, "#!/bin/sh\n", executable=False))

    assert (type(refused), refused.code) == (UsageError, "python-not-executable")


def test_a_broken_interpreter_is_told_from_one_that_is_none(tmp_path: Path) -> None:
    path = script(tmp_path, f'#!/bin/sh\n[ "$1" = -I ] && {{ echo "ImportError: no json" >&2; exit 1; }}\nexec {sys.executable} "$@"\n')

    refused = refusal(path)

    assert (type(refused), refused.code) == (WorldError, "python-broken")
    assert "ImportError: no json" in str(refused)


@pytest.mark.slow
def test_six_hundred_distributions_are_read_in_well_under_a_second(tmp_path: Path) -> None:
    path = make_environment(f"{sys.version_info[0]}.{sys.version_info[1]}", tmp_path / "venv")
    for number in range(600):
        install(site_packages(tmp_path / "venv"), f"package-{number}", "1.0", *(f"other-{one}>=1.{one}" for one in range(20)))
    target(path)
    before = time.monotonic()

    found = target(path)

    assert len(found.distributions) == 600
    assert time.monotonic() - before < 1.0  # about 0.1 s on an idle machine
