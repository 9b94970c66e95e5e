from __future__ import annotations

import pytest

from cudnn_resolve.facts.system import Signs, container_kind


@pytest.mark.parametrize(
    ("signs", "kind"),
    [
        (Signs(environ={}, files=frozenset()), None),
        (Signs(environ={"COLAB_RELEASE_TAG": "release-colab-x"}, files=frozenset({"/.dockerenv"})), "colab"),
        (Signs(environ={}, files=frozenset({"/datalab", "/opt/google/drive", "/.dockerenv"})), "colab"),
        (Signs(environ={"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}, files=frozenset({"/kaggle", "/.dockerenv"})), "kaggle"),
        (Signs(environ={"KAGGLE_USERNAME": "me"}, files=frozenset({"/kaggle"})), None),
        (Signs(environ={"KAGGLE_KERNEL_RUN_TYPE": "x"}, files=frozenset()), None),
        (Signs(environ={}, files=frozenset({"/.dockerenv"})), "docker"),
        (Signs(environ={}, files=frozenset({"/run/.containerenv"})), "docker"),
        (Signs(environ={}, files=frozenset(), cgroup="12:cpu:/kubepods/besteffort/pod1\n"), "docker"),
        (Signs(environ={}, files=frozenset(), cgroup="0::/docker/0123456789abcdef\n"), "docker"),
        (Signs(environ={}, files=frozenset(), cgroup="0::/init.scope\n"), None),
        (Signs(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, files=frozenset()), "docker"),
        (Signs(environ={}, files=frozenset(), kernel="Linux version 5.15.153.1-microsoft-standard-WSL2"), "wsl"),
        (Signs(environ={}, files=frozenset({"/.dockerenv"}), kernel="Linux version 5.15-microsoft-standard-WSL2"), "docker"),
    ],
)
def test_the_signs_of_each_kind(signs: Signs, kind: str | None) -> None:
    found, because = container_kind(signs)

    assert found == kind
    assert because
