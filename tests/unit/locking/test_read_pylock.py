"""Locks of our own, of pip and of uv, read; and what is no lock, or should not be one."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.errors import InputError, WorldError
from cudnn_resolve.locking.proof import lock_digest
from cudnn_resolve.locking.read_pylock import read
from cudnn_resolve.locking.write_pylock import write
from tests.lock_maker import lock_of, pinned

UV = """
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.11"

[[packages]]
name = "six"
version = "1.17"
marker = "sys_platform == 'linux'"
index = "https://index.example/simple"
sdist = { url = "https://h.example/six-1.17.0.tar.gz", upload-time = 2024-12-04T17:35:28+02:00, hashes = { sha256 = "FF70335D468E7EB6" } }
wheels = [
    { url = "https://h.example/six-1.17.0-py2.py3-none-any.whl", hashes = { sha256 = "4721f391ed90541f" } },
]
attestation-identities = [{ kind = "GitHub" }]
dependencies = [{ name = "zlib", vcs = { url = "x" } }, { marker = "?" }]

[[packages]]
name = "app"
directory = { path = ".", editable = true }

[[packages]]
name = "tool"
vcs = { type = "git", url = "ssh://git@host.example/tool.git", commit-id = "0123456789abcdef0123456789abcdef01234567" }

[tool.uv]
anything = 1
"""
MINIMAL = 'lock-version = "1.0"\ncreated-by = "x"\n[[packages]]\nname = "a"\nversion = "1"\n'
WHEEL = 'wheels = [{{ {name}url = "{url}", hashes = {{ sha256 = "{digest}" }} }}]\n'
OURS = '[tool.cudnn-resolve]\nschema = 1\npython = "3.11"\nplatforms = ["linux_x86_64"]\n'


def wheel(url: str = "https://h.example/a-1-py3-none-any.whl", digest: str = "a" * 64, name: str = "") -> str:
    return MINIMAL + WHEEL.format(url=url, digest=digest, name=f'name = "{name}", ' if name else "")


def test_a_lock_of_uv() -> None:
    lock = read(UV)
    app, six, tool = lock.packages

    assert lock.file.created_by == "uv"
    assert lock.tool is None
    assert app.directory is not None
    assert app.directory.editable
    assert tool.vcs is not None
    assert tool.vcs.url == "ssh://git@host.example/tool.git"
    assert str(six.version) == "1.17"
    assert six.sdist is not None
    assert str(six.sdist.upload_time) == "2024-12-04 15:35:28+00:00"
    assert six.sdist.hashes["sha256"].startswith("ff7033")
    assert [one.name for one in six.wheels or ()] == ["six-1.17.0-py2.py3-none-any.whl"]
    assert six.dependencies == [{"name": "zlib"}]
    assert not lock.notes


def test_a_lock_of_an_older_version_is_read_and_its_records_still_count() -> None:
    text = (Path(__file__).parents[2] / "golden" / "lock-written-before.pylock.toml").read_text("utf-8")
    lock = read(text)

    assert lock.tool is not None
    assert lock.tool.request.files == {"requirement": ("requirements.txt",)}
    assert lock.tool.request.options == {"platform": ("linux_x86_64",), "gpu": ("T4", "A100")}
    assert (lock.tool.request.cuda, lock.tool.stacks[0].cuda) == (">=12", "12.4")
    assert lock_digest(lock) == "c4656f0b68708fa1b1d7c75251ee3896", "what the version that wrote it made of it"
    assert read(write(lock)) == lock


def test_credentials_are_left_out_and_that_is_said() -> None:
    lock = read(wheel("https://me:secret@h.example/a-1-py3-none-any.whl"))

    assert (lock.packages[0].wheels or ())[0].url == "https://h.example/a-1-py3-none-any.whl"
    assert "removed the credentials of packages[0].wheels[0].url" in lock.notes[0]
    assert "secret" not in lock.notes[0]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("x = ", "pylock.toml", "not valid TOML"),
        ("a = " + "[" * 100_000, "pylock.toml", "not valid TOML"),
        ("", "lock-version", "Missing required value"),
        ('lock-version = "2.0"\ncreated-by = "x"\npackages = []', "pylock.toml", "newer lock format"),
        ('lock-version = "1.0"\ncreated-by = "x"\npackages = 1', "packages", "Unexpected type"),
        (MINIMAL, "packages[0]", "Exactly one of"),
        (MINIMAL + "wheels = [{ url = 'https://h.example/a-1-py3-none-any.whl', hashes = {} }]", "packages[0].wheels[0].hashes", "hash"),
        (wheel("ftp://h.example/a-1-py3-none-any.whl"), "packages[0].wheels[0].url", "is not a URL of a package"),
        (wheel("https:///a-1-py3-none-any.whl"), "packages[0].wheels[0].url", "is not a URL of a package"),
        (wheel("https://[h/a-1-py3-none-any.whl"), "pylock.toml", "not valid"),
        (
            wheel("https://h.example/a\\u001b[31m-1-py3-none-any.whl", name="a-1-py3-none-any.whl"),
            "packages[0].wheels[0].url",
            "is not a URL of a package",
        ),
        (wheel(digest="xyz"), "packages[0].wheels[0].hashes.sha256", "not a hexadecimal digest"),
        (wheel(name="a-1-py3-none-any/../../x.whl"), "packages[0].wheels[0]", "name"),
        (wheel("https://h.example/b-1-py3-none-any.whl"), "packages[0].wheels[0]", "not consistent"),
        (MINIMAL.replace('"a"', '"A"') + "directory = { path = '.' }", "packages[0].name", "not normalized"),
        (MINIMAL + "directory = { path = '//share/x' }", "packages[0].directory.path", "not a path"),
        (
            MINIMAL + "vcs = { type = 'git', url = 'https://h.example/x', commit-id = '--upload-pack=x' }",
            "packages[0].vcs.commit-id",
            "commit",
        ),
        (MINIMAL + "marker = 'oops'\ndirectory = { path = '.' }", "packages[0].marker", ""),
        (
            MINIMAL + "directory = { path = '.' }\n[packages.tool.cudnn-resolve]\nbecause = 1",
            "packages[0].tool.cudnn-resolve.because",
            "list of strings",
        ),
        (wheel() + "[tool]\ncudnn-resolve = 1", "tool.cudnn-resolve", "Expected `object`"),
        (wheel() + OURS.replace("schema = 1\n", ""), "tool.cudnn-resolve", "missing required field `schema`"),
        (wheel() + OURS.replace("schema = 1", "schema = 2"), "tool.cudnn-resolve", "newer cudnn-resolve"),
        (wheel() + OURS.replace('"3.11"', '"three"'), "tool.cudnn-resolve.python", "matching regex"),
        (wheel() + OURS.replace('["linux_x86_64"]', "[]"), "tool.cudnn-resolve.platforms", "length >= 1"),
        (wheel() + OURS + "targets = [1]", "tool.cudnn-resolve.targets[0]", "Expected `str`"),
        (wheel() + OURS + "driver_min = 'new'", "tool.cudnn-resolve.driver_min", "matching regex"),
        (wheel() + OURS + "compute_capabilities = ['fast']", "tool.cudnn-resolve.compute_capabilities[0]", "matching regex"),
        (wheel() + OURS + "compute_capabilities = ['0.3']", "tool.cudnn-resolve.compute_capabilities[0]", "matching regex"),
        (wheel() + OURS + "cudnn_soname = true", "tool.cudnn-resolve.cudnn_soname", "Expected `int | null`"),
        (wheel() + OURS + "driver_policy = 'loose'", "tool.cudnn-resolve.driver_policy", "'loose'"),
        (wheel() + OURS + "strict_pins = 1", "tool.cudnn-resolve.strict_pins", "Expected `bool`"),
        (wheel() + OURS + "apt = [{ name = 'x', version = '1' }]", "tool.cudnn-resolve.apt[0]", "missing required field `repository`"),
        (wheel() + OURS + "overrides = 1", "tool.cudnn-resolve.overrides", "Expected `array`"),
        (wheel() + OURS + "overrides = [1]", "tool.cudnn-resolve.overrides[0]", "Expected `object`"),
        (wheel() + OURS + "stated = { gpu = 'T4' }", "tool.cudnn-resolve.stated", "Expected `array`"),
        (wheel() + OURS + "validation = [{ when = 2026-01-01 }]", "tool.cudnn-resolve.validation[0]", "may contain only"),
        (wheel() + OURS + "[tool.cudnn-resolve.platform]\nlinux_x86_64 = 1", "tool.cudnn-resolve.platform", "Expected `object`"),
    ],
)
def test_a_fault_is_named_with_its_place(text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text, "pylock.toml")

    assert place in (caught.value.context or "")
    assert words in caught.value.message
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_what_only_informs_is_passed_over_where_it_makes_no_sense() -> None:
    text = wheel().replace('version = "1"', 'version = "1"\nindex = "../simple"\ndependencies = [{ version = 1 }]')

    assert (read(text).packages[0].index, read(text).packages[0].dependencies) == (None, None)


def test_a_secret_in_a_faulty_address_is_not_repeated() -> None:
    with pytest.raises(InputError) as caught:
        read(wheel("ftp://me:secret@h.example/a-1-py3-none-any.whl"))
    assert "secret" not in str(caught.value)


def test_further_fields_of_a_newer_version_are_passed_over() -> None:
    lock = lock_of(pinned("app==1.0"))
    more = (
        write(lock)
        .replace("schema = 1\n", 'schema = 1\nnew = { field = "x" }\n')
        .replace("frameworks = [\n    { ", "frameworks = [\n    { new = 1, ")
    )

    assert read(more) == lock


def test_records_of_tests_are_kept_as_they_are() -> None:
    record = {"gpu": "Tesla T4", "driver": "550.54.15", "checks": [{"id": "conv", "seconds": 0.5, "ok": True}]}
    text = (
        write(lock_of(pinned("app==1.0")))
        + '\n[[tool.cudnn-resolve.validation]]\ngpu = "Tesla T4"\ndriver = "550.54.15"\n'
        + ('checks = [\n    { id = "conv", seconds = 0.5, ok = true },\n]\n')
    )
    lock = read(text)

    assert lock.tool is not None
    assert lock.tool.validation == (record,)
    assert write(lock) == text


def test_an_old_packaging_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, globals: Mapping[str, Any] | None = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002
        if name == "packaging" and "pylock" in (fromlist or ()):
            raise ImportError(name)
        return real(name, globals, locals, fromlist, level)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(WorldError, match="needs packaging 26 or newer") as caught:
        read(MINIMAL)
    assert "pip install -U packaging" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('version = 1\n\n[[package]]\nname = "torch"\nversion = "2.6.0"\n', "x is a uv.lock, not a pylock.toml", "uv export"),
        (
            '[[package]]\nname = "a"\n[metadata]\nlock-version = "2.0"\n',
            "x is a poetry.lock, not",
            "check x` judges it; `cudnn-resolve lock`",
        ),
        ('{"_meta": {}, "default": {}}', "x is a Pipfile.lock, not", "check x` judges it"),
        ("dependencies:\n- python\n", "x is an environment.yml, not", "check x` judges it"),
    ],
)
def test_a_lock_of_another_tool_is_called_so(text: str, said: str, hint: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(text, "x")
    assert hint in (caught.value.hint or "")


def test_a_lock_of_a_newer_form_is_read_and_says_so() -> None:
    lock = read('lock-version = "1.1"\ncreated-by = "x"\npackages = []\n')

    assert lock.notes == ("pylock.toml has lock version 1.1; only the features of version 1.0 are read",)
