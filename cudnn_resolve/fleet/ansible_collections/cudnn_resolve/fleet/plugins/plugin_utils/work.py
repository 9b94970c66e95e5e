"""Base class of the action plugins, which call the package cudnn-resolve on the controller."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class Work(ActionBase):
    """Runs a function of the package, which sends programs to the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False
    work = ""
    """Name of a function in `cudnn_resolve.operations.fleet_action`."""

    def run(self, tmp=None, task_vars=None):
        """Result of the task."""
        try:
            from cudnn_resolve.operations import fleet_action
        except ImportError as error:
            raise AnsibleActionFail(f"cudnn-resolve is not installed in the environment of ansible-core: {error}") from error
        result = super().run(tmp, task_vars)
        result.update(fleet_action.perform(getattr(fleet_action, self.work), self, task_vars or {}))
        return result
