"""Documentation of an action plugin: see plugins/action of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_validate
short_description: Loads the frameworks of an environment on a host and computes with them
version_added: "1.0.0"
description:
  - Does what C(cudnn-resolve validate) does, on a host that needs Python 3.6 or newer and nothing else.
  - Fails where a check fails. Changes nothing.
options:
  python:
    description: The interpreter or the environment to test, by its path, its name or its version.
    type: str
  frameworks:
    description: Which frameworks to test; the default is each that is installed.
    type: list
    elements: str
  require_gpu:
    description: Fail on a host on which programs see no GPU.
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
  description: Whether the checks passed, failed, or could not be made.
  returned: success
  type: str
  sample: passed
validation:
  description: The checks as C(cudnn-resolve validate --format json) prints them.
  returned: success
  type: dict
"""
