"""Notebooks whose cells install by Python, not by a magic alone."""

from __future__ import annotations

import pytest

from tests.unit.package_lists.test_list_forms import listed, notebook, versions


@pytest.mark.parametrize(
    "cell",
    [
        'import os\nos.system("pip install numpy==2.4.0")',
        'if not done: os.system(f"pip install -q numpy==2.4.0 {more}")',
        '  subprocess.check_call([sys.executable, "-m", "pip", "install", "numpy==2.4.0"])',
        'get_ipython().system("pip install " + "numpy==2.4.0")',
        "%shell pip install numpy==2.4.0",
        "#@title Set up\n%%bash\nif true; then\n  pip -q install numpy==2.4.0\nfi",
    ],
)
def test_what_python_has_a_shell_install(cell: str) -> None:
    assert versions(listed(notebook("!pip install keras==3.8.0", cell))) == {"keras": "3.8.0", "numpy": "2.4.0"}


def test_python_that_installs_is_said() -> None:
    for cell in (
        "os.system(command + 'pip install' + numpy)",
        "subprocess.run(" + "[" * 900 + '"pip install"' + "]" * 900 + ")",
        'run([\n    sys.executable, "-m", "pip",\n    "install", "numpy"])',
        "x = !pip install numpy==2.4.0",
    ):
        assert len(listed(notebook("!pip install keras==3.8.0", cell)).gaps) == 1
    for cell in ("# pip install numpy", "print('run pip install numpy')", 'raise ImportError("pip install numpy")', "import pip"):
        assert not listed(notebook("!pip install keras==3.8.0", cell)).gaps
