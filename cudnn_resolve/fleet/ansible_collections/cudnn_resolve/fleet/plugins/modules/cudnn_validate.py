"""Documentation of the action plugin of the same name in plugins/action."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_validate
short_description: Tests the frameworks of an environment on a host
version_added: "1.0.0"
description:
  - Does the same as C(cudnn-resolve validate), on a host that needs only Python 3.6 or newer.
  - Fails if a check fails. Changes nothing.
options:
  python:
    description: The interpreter or environment to test, by path, name or version.
    type: str
  frameworks:
    description: Frameworks to test; the default is all installed ones.
    type: list
    elements: str
  require_gpu:
    description: Fail on a host without a visible GPU.
    type: bool
    default: false
requirements:
  - cudnn-resolve on the controller
author:
  - The cudnn-resolve authors (@cudnn-resolve)
attributes:
  check_mode:
    description: Can run in check mode, as it changes nothing.
    support: full
  diff_mode:
    description: There is nothing to compare.
    support: none
"""

EXAMPLES = r"""
- name: Test torch on every GPU of the host
  cudnn_resolve.fleet.cudnn_validate:
    python: /opt/dl
    frameworks: [torch]
    require_gpu: true
"""

RETURN = r"""
status:
  description: Whether the checks passed, failed, or were skipped.
  returned: success
  type: str
  sample: passed
validation:
  description: The checks, as printed by C(cudnn-resolve validate --format json).
  returned: success
  type: dict
"""
