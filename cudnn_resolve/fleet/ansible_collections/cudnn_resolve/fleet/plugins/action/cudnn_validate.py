"""The action behind the module cudnn_validate: it runs on the controller."""

from __future__ import annotations

from ..plugin_utils.work import Work  # noqa: TID252 - the name of the collection is given by Ansible


class ActionModule(Work):
    """Does the work of `cudnn_validate`."""

    work = "validate"
