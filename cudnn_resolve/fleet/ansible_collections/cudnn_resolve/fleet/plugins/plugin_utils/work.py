"""What the actions of the modules share: the work is that of the package cudnn-resolve, on the controller."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class Work(ActionBase):
    """Does its work with programs that are carried to the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False
    work = ""
    """The name of a function of `cudnn_resolve.operations.fleet_action`."""

    def run(self, tmp=None, task_vars=None):
        """The result of the task."""
        try:
            from cudnn_resolve.operations import fleet_action
        except ImportError as error:
            raise AnsibleActionFail(f"cudnn-resolve is not installed beside ansible-core: {error}") from error
        result = super().run(tmp, task_vars)
        result.update(fleet_action.perform(getattr(fleet_action, self.work), self, task_vars or {}))
        return result
