"""Documentation of the action plugin of the same name in plugins/action."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_facts
short_description: Detects driver, GPUs, CUDA, cuDNN and frameworks of a host
version_added: "1.0.0"
description:
  - Detects the same as C(cudnn-resolve detect), on a host that needs only Python 3.6 or newer.
  - Changes nothing.
options:
  python:
    description:
      - The interpreter or environment to inspect, by path, name or version.
      - The default is chosen as by C(cudnn-resolve detect) on the host.
    type: str
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
- name: Detect the host
  cudnn_resolve.fleet.cudnn_facts:
    python: /opt/dl
  register: machine

- name: Show its driver
  ansible.builtin.debug:
    msg: "{{ machine.facts.driver }}"
"""

RETURN = r"""
facts:
  description: The facts, as printed by C(cudnn-resolve detect --format json) and read by C(--facts).
  returned: success
  type: dict
"""
