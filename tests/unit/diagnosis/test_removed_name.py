"""Names that an installed release no longer has: the release that has them, and what newer ones have instead."""

from __future__ import annotations

import pytest

from tests.written_logs import judged

SITE = "/home/me/env/lib/python3.10/site-packages"
PIP = "/home/me/env/bin/python -m pip install"


def steps(log: str) -> list[str]:
    """Texts and commands of the first finding's remedies."""
    return [part for remedy in judged(log).findings[0].remedy for part in (remedy.text, remedy.command) if part]


def frame(package: str, line: str = "x()") -> str:
    return f'  File "{SITE}/{package}", line 7, in <module>\n    {line}\n'


@pytest.mark.parametrize(
    ("error", "command"),
    [
        ("AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'", "'pillow<10'"),
        ("AttributeError: 'ImageDraw' object has no attribute 'textsize'", "'pillow<10'"),
        ("ImportError: cannot import name 'HfFolder' from 'huggingface_hub' (/v/x/__init__.py)", "'huggingface-hub<1'"),
        ("AttributeError: module 'scipy.misc' has no attribute 'toimage'", "'scipy<1.2'"),
        ("ModuleNotFoundError: No module named 'torchtext.legacy.data'", "'torchtext<0.12'"),
        ("ModuleNotFoundError: No module named 'distutils'", "'setuptools>=60'"),
        ("ModuleNotFoundError: No module named 'numpy.dtypes'", "'numpy>=1.25'"),
        ("AttributeError: 'module' object has no attribute 'tf'", "'keras<2.2.5'"),
        ("AttributeError: module 'keras.backend' has no attribute 'tf'", "'keras<2.2.5'"),
        ("ModuleNotFoundError: No module named 'distutils.msvccompiler'", "'setuptools<74'"),
        ("TypeError: load() missing 1 required positional argument: 'Loader'", "'pyyaml<6'"),
        ("ImportError: `load_boston` has been removed from scikit-learn since version 1.2.", "'scikit-learn<1.2'"),
    ],
)
def test_the_release_with_the_name_is_installed(error: str, command: str) -> None:
    found = judged(f"{error}\n").findings[0]
    assert (found.cause, found.severity) == ("unrecognised", "warning")
    assert "not a failure of the GPU stack" in found.summary
    assert f"python -m pip install {command}" in steps(f"{error}\n")


@pytest.mark.parametrize(
    ("package", "error", "installed"),
    [
        ("paddleocr/_common_args.py", "ValueError: Unknown argument: use_gpu", "'paddleocr<3'"),
        ("paddleocr/_common_args.py", "ValueError: Unknown argument: show_log", "'paddleocr<3'"),
        ("paddleocr/_pipelines/ocr.py", "TypeError: PaddleOCR.predict() got an unexpected keyword argument 'cls'", "'paddleocr<3'"),
        ("other/x.py", "ValueError: Unknown argument: use_gpu", None),
    ],
)
def test_words_of_one_package_say_nothing_in_another(package: str, error: str, installed: str | None) -> None:
    log = f"Traceback (most recent call last):\n{frame(package)}{error}\n"
    assert [step for step in steps(log) if "pip install" in step] == ([f"{PIP} {installed}"] if installed else [])


@pytest.mark.parametrize("folder", ["D:\\RVC\\runtime", "H:\\b\\ballontrans_pylibs_win"])
def test_a_portable_python_has_no_scripts_folder(folder: str) -> None:
    log = f'  File "{folder}\\lib\\site-packages\\paddleocr\\x.py", line 4, in f\nValueError: Unknown argument: use_gpu\n'
    assert f'{folder}\\python.exe -m pip install "paddleocr<3"' in steps(log)


@pytest.mark.parametrize(
    ("error", "older"),
    [
        ("AttributeError: module 'collections' has no attribute 'MutableMapping'", "3.9"),
        ("ModuleNotFoundError: No module named 'imp'", "3.11"),
        ("AttributeError: module 'time' has no attribute 'clock'", "3.7"),
        ("AttributeError: module 'inspect' has no attribute 'getargspec'. Did you mean: 'getargs'?", "3.10"),
    ],
)
def test_a_name_that_python_removed_asks_for_an_older_one(error: str, older: str) -> None:
    assert f"uv venv --seed --python {older} .venv-{older}" in steps(f"{error}\n")


@pytest.mark.parametrize(
    "error",
    [
        "AttributeError: module 'collections' has no attribute 'Orderdict'",
        "AttributeError: 'DataFrame' object has no attribute 'append'",
        "TypeError: launch() got an unexpected keyword argument 'gpus'",
        "AttributeError: module 'scipy.misc' has no attribute 'face'",
    ],
)
def test_a_name_that_was_never_there_or_is_another_class_gets_no_older_release(error: str) -> None:
    assert not any(release in step for step in steps(f"{frame('pyspark/sql/dataframe.py')}{error}\n") for release in ("<", "3.9"))


def test_a_package_is_not_taken_for_the_caller_of_its_own_name() -> None:
    error = "ImportError: `load_boston` has been removed from scikit-learn since version 1.2.\n"
    assert not any("-U" in step for step in steps(frame("sklearn/datasets/__init__.py") + error))


@pytest.mark.parametrize("name", ["'imread'", "imread"])
def test_an_error_without_the_module_is_of_the_import_before_it(name: str) -> None:
    log = f'  File "main.py", line 7, in <module>\n    from scipy.misc import imread\nImportError: cannot import name {name}\n'
    assert "python -m pip install 'scipy<1.2'" in steps(log)
    assert not any("scipy" in step for step in steps(log.replace("scipy.misc", "mine")))


@pytest.mark.parametrize("owner", ["keras/engine/saving.py", "tensorflow/python/keras/saving/hdf5_format.py"])
def test_keras_of_the_time_of_h5py_2_gets_it(owner: str) -> None:
    error = "AttributeError: 'str' object has no attribute 'decode'\n"
    assert f"{PIP} 'h5py<3'" in steps(frame(owner) + error)
    assert not any("h5py" in step for step in steps(frame("requests/api.py") + error))


def test_a_package_that_asks_for_the_name_is_upgraded_first_but_no_framework() -> None:
    error = "ImportError: cannot import name 'cached_download' from 'huggingface_hub' (/v/x/__init__.py)\n"
    assert steps(frame("diffusers/utils/x.py") + error)[1] == f"{PIP} -U diffusers"
    assert steps(frame("unheardof/x.py") + error)[1] == f"{PIP} 'huggingface-hub<0.26'"
    assert not any("-U" in step for step in steps(frame("torch/hub.py") + error))
    raised = frame("timm/data.py") + frame("PIL/Image.py")
    assert steps(raised + "AttributeError: module 'PIL.Image' has no attribute 'ANTIALIAS'\n")[1] == f"{PIP} -U timm"


@pytest.mark.parametrize(
    ("error", "instead"),
    [
        ("ModuleNotFoundError: No module named 'torchvision.transforms.functional_tensor'", "torchvision.transforms.functional "),
        ("ModuleNotFoundError: No module named 'keras.layers.core'", "keras.layers "),
        ("ModuleNotFoundError: No module named 'mmcv.runner'", "mmengine "),
    ],
)
def test_a_framework_is_not_moved_for_a_name_that_has_moved(error: str, instead: str) -> None:
    found = steps(f"{error}\n")
    assert f"newer releases have {instead}" in found[0]
    assert not any("cudnn-resolve" in step or "pip install" in step for step in found)


def test_a_name_that_no_table_knows_changes_nothing() -> None:
    found = judged("AttributeError: module 'PIL.Image' has no attribute 'frobnicate'\n").findings[0]
    assert "not recognised" in found.summary
