"""Where packages come from: pip's files and variables, uv's, and the command line over both."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from cudnn_resolve.errors import UsageError
from cudnn_resolve.index import pip_config
from cudnn_resolve.index.address import Origin
from cudnn_resolve.index.read_settings import Options, moment, read_settings
from cudnn_resolve.index.settings import Proxy, Settings

A, B, C, D = (f"https://{letter}.invalid/simple" for letter in "abcd")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home, a configuration folder and a prefix, all empty, and a pip that knows index `d`."""
    for name in ("home", "prefix", "project", "etc/pip", "etc/uv", "pip/_internal/models"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pip/_internal/models/index.py").write_text(f'PyPI = PackageIndex("{D[:-6]}", file_storage_domain="x")\n', "utf-8")
    return tmp_path


def read(home: Path, options: Options | None = None, **environ: str) -> Settings:
    world = {"HOME": str(home / "home"), "XDG_CONFIG_DIRS": str(home / "etc"), **environ}
    folders = {"prefix": str(home / "prefix"), "directory": str(home / "project"), "system": str(home / "system")}
    return read_settings(options or Options(), world, import_path=[str(home)], **folders)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def urls(settings: Settings) -> list[str]:
    return [index.url for index in settings.indexes]


def test_where_nothing_is_configured_pips_own_index_counts(home: Path) -> None:
    settings = read(home)
    assert urls(settings) == [D]
    assert settings.indexes[0].source.endswith("index.py")
    assert settings.rule == "pip"


def test_without_the_targets_pip_another_one_is_asked(home: Path) -> None:
    (home / "pip/_internal/models/index.py").unlink()
    (settings,) = read(home).indexes
    assert settings.url.startswith("https://")


def test_a_pip_in_a_wheel_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import zipfile

    path = tmp_path / "pip-99.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("pip/_internal/models/index.py", f'# a line\nPyPI = PackageIndex(\n    "{A[:-6]}", file_storage_domain="x"\n)\n')
    monkeypatch.setattr(pip_config, "_WHEEL_FOLDERS", (str(tmp_path),))
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(os, "__file__", str(tmp_path / "lib" / "os.py"))
    assert pip_config.default_index([]) == (A, str(path))
    path.write_bytes(b"no zip")
    assert pip_config.default_index([]) is None


def test_without_any_pip_somebody_has_to_say(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pip_config, "default_index", lambda _: None)
    settings = read(home)
    assert settings.indexes == ()
    assert "--index-url" in settings.notes[0]
    assert not read(home, PIP_NO_INDEX="1").notes
    assert not read(home, Options(index_url=A)).notes


def test_the_directory_that_somebody_stands_in_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "pip/_internal/models/index.py", f'PyPI = PackageIndex("{A[:-6]}")\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = pip_config.default_index([])
    assert found is not None
    assert found[0] != A


def test_pips_files_count_in_pips_order(home: Path) -> None:
    write(home / "etc/pip/pip.conf", f"[global]\nindex-url = {A}\ntimeout = 3\nextra-index-url =\n    {C}\n    {D}\n")
    assert urls(read(home)) == [A, C, D]
    write(home / "home/.pip/pip.conf", f"[global]\nindex-url = {B}\n")
    assert urls(read(home)) == [B, C, D]
    write(home / "home/.config/pip/pip.conf", f"[global]\nindex_url = {C}\n")
    assert urls(read(home)) == [C, D]
    write(home / "prefix/pip.conf", f"[global]\nindex-url = {A}\n")
    settings = read(home)
    assert urls(settings) == [A, C, D]
    assert settings.indexes[0].source == str(home / "prefix/pip.conf")
    assert settings.patience.read == 3.0
    write(home / "etc/pip/pip.conf", f"[install]\nindex-url = {B}\n[global]\nindex-url = {C}\n[list]\nindex-url = {D}\n")
    assert urls(read(home)) == [B]
    assert urls(read(home, PIP_INDEX_URL=D)) == [D]
    assert urls(read(home, PIP_INDEX_URL="")) == [B]
    assert urls(read(home, Options(index_url=A), PIP_INDEX_URL=D)) == [A]


def test_a_named_file_takes_the_place_of_the_users(home: Path) -> None:
    write(home / "home/.config/pip/pip.conf", f"[global]\nextra-index-url = {B}\n")
    write(home / "prefix/pip.conf", f"[global]\nindex-url = {A}\n")
    write(home / "named.conf", f"[global]\nindex-url = {C}\n")
    assert urls(read(home, PIP_CONFIG_FILE=str(home / "named.conf"))) == [C]
    assert urls(read(home, PIP_CONFIG_FILE="/dev/null")) == [D]
    assert urls(read(home, PIP_CONFIG_FILE=str(home / "missing.conf"))) == [A, B]


def test_a_file_that_is_no_configuration_is_a_note(home: Path) -> None:
    write(home / "etc/pip/pip.conf", "index-url = x\n")
    settings = read(home)
    assert urls(settings) == [D]
    assert "is not a pip configuration" in settings.notes[0]


def test_everything_else_that_pip_can_be_told(home: Path) -> None:
    write(
        home / "etc/pip/pip.conf",
        """[global]
cert = /certs.pem
client-cert = /me.pem
proxy = http://joe:s3cret@proxy.invalid:3128
trusted-host = a.invalid
    b.invalid:8443
no-binary = Some_Thing,other
only-binary = :all:
retries = 7
find-links = /wheels
    https://me:s3cret@links.invalid/page.html
keyring-provider = disabled
""",
    )
    settings = read(home, NO_PROXY="localhost, .inner.invalid,c.invalid:8000")
    assert (settings.certificate, settings.client_certificate, settings.retries, settings.keyring) == ("/certs.pem", "/me.pem", 7, False)
    assert settings.no_binary == {"some-thing", "other"}
    assert settings.only_binary == {":all:"}
    assert settings.find_links == ("file:///wheels", "https://links.invalid/page.html")
    assert settings.trusts(Origin("https", "a.invalid", 443))
    assert settings.trusts(Origin("https", "b.invalid", 8443))
    assert not settings.trusts(Origin("https", "b.invalid", 443))
    assert settings.proxies_for("https://x.invalid/simple/") == {"https": "http://joe:s3cret@proxy.invalid:3128"}
    for url in ("http://localhost/", "https://deep.inner.invalid/", "https://c.invalid:8000/"):
        assert settings.proxies_for(url) == {}
    assert settings.proxies_for("https://c.invalid/")
    assert "s3cret" not in repr(settings)


@pytest.mark.parametrize(
    ("listed", "url"),
    [
        ("localhost,*", "https://pypi.invalid/"),
        ("[::1]", "http://[::1]:3141/"),
        ("::1", "http://[::1]:3141/"),
        ("[::1]:3141", "http://[::1]:3141/"),
        ("*example.invalid", "https://a.example.invalid/"),
        (" .example.invalid , other", "https://a.example.invalid/"),
    ],
)
def test_a_host_without_a_proxy_is_named_as_pip_and_curl_take_it(listed: str, url: str) -> None:
    proxies = tuple(Proxy(scheme=scheme, url="http://proxy.invalid:3128") for scheme in ("http", "https"))
    assert Settings(proxies=proxies, no_proxy=listed).proxies_for(url) == {}
    assert Settings(proxies=proxies, no_proxy=listed.removesuffix("*")).proxies_for("https://elsewhere.invalid/") != {}


def test_no_index_leaves_the_folders_alone(home: Path) -> None:
    settings = read(home, PIP_NO_INDEX="1", PIP_FIND_LINKS="/wheels file:///more")
    assert settings.indexes == ()
    assert settings.find_links == ("file:///wheels", "file:///more")
    assert read(home, Options(no_index=True)).indexes == ()
    assert urls(read(home, PIP_NO_INDEX="0")) == [D]


def test_options_add_to_what_is_configured(home: Path) -> None:
    settings = read(home, Options(extra_index_urls=[B], find_links=["/more"]), PIP_EXTRA_INDEX_URL=A, PIP_FIND_LINKS="/wheels")
    assert urls(settings) == [D, A, B]
    assert settings.find_links == ("file:///more", "file:///wheels")


def test_a_folder_may_be_an_index(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    assert urls(read(home, Options(index_url="tree"))) == [(home / "tree").as_uri()]
    assert urls(read(home, Options(index_url="file:///tree/"))) == ["file:///tree"]


@pytest.mark.parametrize("text", ["ftp://a.invalid/simple", "https://", "file://elsewhere/x", "https://a.invalid:99999/", "https://[/"])
def test_an_address_that_is_none_is_a_usage_error(home: Path, text: str) -> None:
    with pytest.raises(UsageError):
        read(home, Options(index_url=text))


def test_uvs_configuration_counts_where_pip_says_nothing(home: Path) -> None:
    write(home / "project/pyproject.toml", f'[[tool.uv.index]]\nname = "a"\nurl = "{A}"\n[[tool.uv.index]]\nurl = "{B}"\ndefault = true\n')
    settings = read(home)
    assert (urls(settings), settings.rule) == ([A, B], "uv")
    assert urls(read(home, PIP_INDEX_URL=C)) == [C]
    write(home / "project/uv.toml", f'index-url = "{C}"\n')
    assert urls(read(home)) == [C]
    assert urls(read(home, UV_INDEX=f"named={A} {B}")) == [A, B, C]
    assert urls(read(home, UV_DEFAULT_INDEX=D, UV_INDEX_URL=A)) == [D]
    assert urls(read(home, Options(index_url=B, extra_index_urls=[D]))) == [D, B]


def test_an_option_takes_the_place_of_the_default_index_also_under_the_best_match(home: Path) -> None:
    write(home / "project/uv.toml", f'extra-index-url = ["{A}"]\nindex-url = "{B}"\nindex-strategy = "unsafe-best-match"\n')
    settings = read(home, Options(index_url=C, extra_index_urls=[D]))
    assert (urls(settings), settings.rule) == ([A, C, D], "pip")
    assert urls(read(home)) == [A, B]


def test_uvs_files_count_from_the_project_to_the_system(home: Path) -> None:
    write(home / "etc/uv/uv.toml", f'extra-index-url = ["{A}"]\nindex-strategy = "unsafe-best-match"\n')
    write(home / "home/.config/uv/uv.toml", f'extra-index-url = ["{B}"]\nexclude-newer = "2024-01-31"\n')
    (home / "project/deep").mkdir()
    settings = read_settings(
        Options(),
        {"HOME": str(home / "home"), "XDG_CONFIG_DIRS": str(home / "etc")},
        prefix=None,
        import_path=[str(home)],
        directory=str(home / "project/deep"),
        system=str(home / "system"),
    )
    assert urls(settings) == [B, A, D]
    assert settings.rule == "pip"
    assert settings.exclude_newer == "2024-02-01T00:00:00.000000Z"
    write(home / "project/pyproject.toml", f'[tool.uv.pip]\nextra-index-url = ["{C}"]\n[tool.uv]\nno-binary-package = ["X_y"]\n')
    settings = read(home)
    assert urls(settings) == [C, B, A, D]
    assert settings.no_binary == {"x-y"}
    assert urls(read(home, UV_NO_CONFIG="1")) == [D]
    write(home / "only.toml", f'index-url = "{A}"\n')
    assert urls(read(home, UV_CONFIG_FILE=str(home / "only.toml"))) == [A]


def test_credentials_of_named_indexes_come_from_uvs_variables(home: Path) -> None:
    settings = read(home, UV_INDEX=f"my-own={A}", UV_INDEX_MY_OWN_USERNAME="me", UV_INDEX_MY_OWN_PASSWORD="s3cret")  # noqa: S106 - made up
    login = settings.indexes[0].login
    assert login is not None
    assert (login.user, login.password) == ("me", "s3cret")
    assert "s3cret" not in repr(settings)


def test_uvs_explicit_indexes_serve_nobody_who_does_not_name_them(home: Path) -> None:
    write(home / "project/uv.toml", f'[[index]]\nname = "a"\nurl = "{A}"\nexplicit = true\n[[index]]\nurl = "{B}"\n')
    assert urls(read(home)) == [B, D]


@pytest.mark.parametrize(
    "text",
    [
        "index = 5",
        'index = [5, {url = 3}, "x"]',
        "extra-index-url = 3",
        "find-links = {}",
        'index-strategy = ["x"]',
        "no TOML",
        "pip = 3",
        "exclude-newer = 5",
    ],
)
def test_what_is_wrong_in_uvs_files_stops_nothing(home: Path, text: str) -> None:
    write(home / "project/uv.toml", f'{text}\nindex-url = "{A}"\n')
    settings = read(home)
    assert urls(settings) in ([A], [D])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2024-01-31", "2024-02-01T00:00:00.000000Z"),
        ("2024-01-31T12:00:00Z", "2024-01-31T12:00:00.000000Z"),
        ("2024-01-31T12:00:00+02:00", "2024-01-31T10:00:00.000000Z"),
        ("2024-01-31T12:00:00.5", "2024-01-31T12:00:00.500000Z"),
        ("2024-13-31", None),
        ("yesterday", None),
        ("", None),
    ],
)
def test_a_moment(text: str, found: str | None) -> None:
    assert moment(text) == found


@pytest.mark.parametrize("text", ["P3D", "2 weeks", "5 days ago", "12 hours", "1 month"])
def test_a_span_before_now(text: str) -> None:
    assert "2000-01-01" < str(moment(text)) < str(moment("P0D"))


def test_a_date_that_is_none_is_a_usage_error(home: Path) -> None:
    with pytest.raises(UsageError, match="is not a date"):
        read(home, Options(exclude_newer="soon"))
    assert read(home, PIP_UPLOADED_PRIOR_TO="soon").notes


def test_packages_without_wheels(home: Path) -> None:
    changes: dict[str, Any] = {"no_binary": ["a,b", ":none:", "C_c"], "only_binary": ["d"]}
    settings = read(home, Options(**changes), PIP_NO_BINARY="x")
    assert (settings.no_binary, settings.only_binary) == (frozenset({"c-c"}), frozenset({"d"}))
    assert read(home, PIP_NO_BINARY="x,:all:").no_binary == {"x", ":all:"}
    assert read(home, UV_INDEX_URL=A, UV_NO_BUILD="1").only_binary == {":all:"}


def test_a_package_may_have_an_index_of_its_own(home: Path) -> None:
    write(
        home / "project/pyproject.toml",
        f"""[[tool.uv.index]]
name = "variant"
url = "{A}"
explicit = true
[[tool.uv.index]]
name = "mine"
url = "./tree"
[tool.uv.sources]
Torch = {{ index = "variant" }}
torchvision = [{{ index = "variant" }}]
other = [{{ index = "variant", marker = "os_name == 'nt'" }}, {{ index = "mine" }}]
gone = {{ index = "missing" }}
app = {{ workspace = true }}
""",
    )
    settings = read(home)
    assert urls(settings) == [(home / "project/tree").as_uri(), D]
    assert [(package, index.url) for package, index in settings.assigned] == [("torch", A), ("torchvision", A)]
    assert any("which it does not define" in note for note in settings.notes)


def test_an_index_that_pip_leaves_out_is_noted(home: Path) -> None:
    assert any("pip ignores" in note for note in read(home, PIP_INDEX_URL="http://a.invalid/simple").notes)
    assert not read(home, PIP_INDEX_URL="http://a.invalid/simple", PIP_TRUSTED_HOST="a.invalid").notes
    assert not read(home, PIP_INDEX_URL="http://localhost/simple").notes
    assert not read(home, PIP_INDEX_URL=A).notes


def test_limits_are_named_by_pip_and_by_uv(home: Path) -> None:
    assert not read(home).constraints
    write(home / "etc" / "pip" / "pip.conf", "[install]\nconstraint = /etc/pip/constraint.txt other.txt\n")
    source = str(home / "etc" / "pip" / "pip.conf")
    assert read(home).constraints == (("/etc/pip/constraint.txt", source), ("other.txt", source))
    both = read(home, PIP_CONSTRAINT="c.txt", UV_CONSTRAINT="u.txt v.txt").constraints
    assert both == (("c.txt", "PIP_CONSTRAINT"), ("u.txt", "UV_CONSTRAINT"), ("v.txt", "UV_CONSTRAINT"))
