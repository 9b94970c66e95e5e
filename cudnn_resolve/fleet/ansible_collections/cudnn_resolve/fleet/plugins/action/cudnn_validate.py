"""Action plugin of the module cudnn_validate, run on the controller."""

from __future__ import annotations

from ..plugin_utils.work import Work  # noqa: TID252 - Ansible decides the name of the package


class ActionModule(Work):
    """Implements `cudnn_validate`."""

    work = "validate"
