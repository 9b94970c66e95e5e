"""What kind of container or notebook service a machine is."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

_CGROUP = re.compile(r"/(?:docker|kubepods|containerd|lxc|libpod|crio|garden)\b|docker-[0-9a-f]{12}|/actions_job/")


class Signs(Struct, frozen=True, kw_only=True):
    """What was looked at."""

    environ: Mapping[str, str]
    files: frozenset[str]
    """Those of `SIGN_FILES` that exist."""
    cgroup: str = ""
    """/proc/1/cgroup."""
    kernel: str = ""
    """/proc/version."""


SIGN_FILES = ("/.dockerenv", "/run/.containerenv", "/kaggle", "/opt/google/drive", "/var/colab", "/datalab", "/tools/node")
"""Files and directories that give a container away: of Docker, Podman, Kaggle and Colab."""


def container_kind(signs: Signs) -> tuple[str | None, str]:
    """`colab`, `kaggle`, `docker`, `wsl` or None, and what says so. Any OCI container counts as `docker`."""
    environ = signs.environ
    colab = sorted(name for name in environ if name.startswith("COLAB_") and environ[name])
    if colab:
        return "colab", f"environment variable {colab[0]}"
    kaggle = sorted(name for name in environ if name.startswith("KAGGLE_") and name not in _KAGGLE_CLIENT)
    if kaggle and "/kaggle" in signs.files:
        return "kaggle", f"environment variable {kaggle[0]} and /kaggle"
    if "/var/colab" in signs.files or {"/datalab", "/opt/google/drive"} <= signs.files:
        return "colab", "files of the Colab image"
    for file in ("/.dockerenv", "/run/.containerenv"):
        if file in signs.files:
            return "docker", file
    found = _CGROUP.search(signs.cgroup)
    if found:
        return "docker", f"/proc/1/cgroup names {found[0]}"
    if "KUBERNETES_SERVICE_HOST" in environ:
        return "docker", "environment variable KUBERNETES_SERVICE_HOST"
    if "microsoft" in signs.kernel.lower():
        return "wsl", "/proc/version names Microsoft"
    return None, "no sign of a container, Colab, Kaggle or WSL"


_KAGGLE_CLIENT = frozenset({"KAGGLE_USERNAME", "KAGGLE_KEY", "KAGGLE_CONFIG_DIR"})
"""Set by users of Kaggle's command-line client on any machine."""
