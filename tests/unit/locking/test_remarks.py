"""What is said beside the packages of a list: where they come from, what conda or uv chooses, and what in a paste is no package."""

from __future__ import annotations

import pytest

from tests.unit.package_lists.test_list_forms import listed, versions

HOME, OTHER = "https://index.example/simple", "https://me:secret@corp.example/simple"
PLACES = {
    "uv.lock": (
        f'version = 1\n[[package]]\nname = "a"\nversion = "1"\nsource = {{registry = "{HOME}"}}\n[[package]]\nname = "b"\nversion = "1"\n'
        f'source = {{registry = "{HOME}"}}\n[[package]]\nname = "torch"\nversion = "2.6.0"\nsource = {{registry = "{OTHER}"}}\n'
        '[[package]]\nname = "torchvision"\nversion = "0.21.0"\nsource = {registry = "https://corp.example/whl/cu124"}\n'
    ),
    "poetry.lock": (
        '[[package]]\nname = "a"\nversion = "1"\ngroups = ["main"]\n[[package]]\nname = "torch"\nversion = "2.6.0"\ngroups = ["main"]\n'
        f'[package.source]\ntype = "legacy"\nurl = "{OTHER}"\nreference = "corp"\n[metadata]\nlock-version = "2.1"\n'
    ),
    "pylock.toml": (
        f'lock-version = "1.0"\n[[packages]]\nname = "a"\nversion = "1"\nindex = "{HOME}"\n[[packages]]\nname = "b"\nversion = "1"\n'
        f'index = "{HOME}"\n[[packages]]\nname = "torch"\nversion = "2.6.0"\nindex = "{OTHER}"\n'
    ),
    "Pipfile.lock": (
        f'{{"_meta": {{"sources": [{{"name": "home", "url": "{HOME}"}}, {{"name": "corp", "url": "{OTHER}"}}]}},'
        '"default": {"a": {"version": "==1", "index": "home"}, "torch": {"version": "==2.6.0", "index": "corp"}}}'
    ),
}


@pytest.mark.parametrize("kind", PLACES)
def test_an_index_beside_the_one_of_most_packages_is_said(kind: str) -> None:
    found = listed(PLACES[kind])
    said = [note for note in found.notes if "also come from" in note]
    assert found.kind == kind
    assert said == ["packages also come from https://corp.example/simple (judged by name and version only)"]
    if kind in ("uv.lock", "pylock.toml"):  # the others name an index only where it is not the first
        assert not [note for note in listed(PLACES[kind].replace(OTHER, HOME)).notes if "index.example" in note]


@pytest.mark.parametrize(("python", "gaps"), [("", ["no Python is pinned, so conda chooses one: judged for 3.11"]), ("python=3.11, ", [])])
def test_an_environment_without_a_python(python: str, gaps: list[str]) -> None:
    assert list(listed(f"name: x\ndependencies: [{python}pip, {{pip: ['torch==2.6.0']}}]\n").gaps) == gaps


SYNC = "`uv run` installs uv.lock"


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("RUN uv run train.py", SYNC),
        ("RUN uv run --frozen python train.py", SYNC),
        ('CMD ["uv", "run", "--no-dev", "train.py"]', SYNC),
        ("ENTRYPOINT uv run train.py", SYNC),
        ("RUN uv run --no-sync train.py", None),
        ('CMD ["python", "train.py"]', None),
        (
            "RUN uv run --no-project --with https://me:secret@corp.example/x.whl y.py",
            "packages for that run only: --no-project --with https",
        ),
        ("COPY --from=corp.example/uv:0.9 /uv /uvx /bin/", None),
        ("COPY --from=corp.example/uv:0.9 /uv /wheels /bin/", "COPY --from=corp.example/uv:0.9"),
    ],
)
def test_what_uv_runs_in_an_image(line: str, gap: str | None) -> None:
    found = listed(f"FROM python:3.11-bookworm\nRUN pip install torch==2.6.0\n{line}\n").gaps
    assert bool(found) == (gap is not None)
    assert gap is None or gap in found[0]
    assert "secret" not in str(found)


def test_a_pasted_list_with_its_prompt() -> None:
    prompt, table = "(venv) me@host:~$ ", "Package Version\n------- -------\ntorch   2.6.0\n\n[notice] A new release\n"
    found = listed(f"{prompt}pip list\n{table}{prompt}\n".replace("\n", "\r\n"))
    assert (versions(found), found.gaps) == ({"torch": "2.6.0"}, ())
