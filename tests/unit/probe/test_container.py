from __future__ import annotations

import pytest

from cudnn_resolve.probe.system import find_container
from tests.fake_host import FakeHost


@pytest.mark.parametrize(
    ("environ", "files", "kind"),
    [
        ({}, {}, None),
        ({"COLAB_RELEASE_TAG": "release-colab-x"}, {"/.dockerenv": ""}, "colab"),
        ({}, {"/datalab": "", "/opt/google/drive": "", "/.dockerenv": ""}, "colab"),
        ({"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, {"/kaggle": "", "/.dockerenv": ""}, "kaggle"),
        ({"KAGGLE_USERNAME": "me"}, {"/kaggle": ""}, None),
        ({"KAGGLE_KERNEL_RUN_TYPE": "x"}, {}, None),
        ({}, {"/.dockerenv": ""}, "docker"),
        ({}, {"/run/.containerenv": ""}, "docker"),
        ({}, {"/.singularity.d": ""}, "docker"),
        ({}, {"/proc/1/cgroup": "12:cpu:/kubepods/besteffort/pod1\n"}, "docker"),
        ({}, {"/proc/1/cgroup": "0::/docker/0123456789abcdef\n"}, "docker"),
        ({}, {"/proc/1/cgroup": "0::/init.scope\n"}, None),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, {}, "docker"),
        ({}, {"/proc/version": "Linux version 5.15.153.1-microsoft-standard-WSL2"}, "wsl"),
        ({}, {"/.dockerenv": "", "/proc/version": "Linux version 5.15-microsoft-standard-WSL2"}, "docker"),
    ],
)
def test_the_signs_of_each_kind(environ: dict[str, str], files: dict[str, str], kind: str | None) -> None:
    found, because = find_container(FakeHost(files, environ=environ))

    assert found == kind
    assert because
