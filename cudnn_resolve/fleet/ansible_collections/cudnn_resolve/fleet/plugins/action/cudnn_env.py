"""The action behind the module cudnn_env: it runs on the controller."""

from __future__ import annotations

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """Does the work with programs that are carried to the host."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        """The result of the task."""
        try:
            from cudnn_resolve.operations import fleet_action as action
        except ImportError as error:
            raise AnsibleActionFail(f"cudnn-resolve is not installed beside ansible-core: {error}") from error
        result = super().run(tmp, task_vars)
        result.update(action.perform(action.environment, self, task_vars or {}))
        return result
