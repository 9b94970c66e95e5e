"""Documentation of an action plugin: see plugins/action of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_facts
short_description: Detects driver, GPUs, CUDA, cuDNN and frameworks of a host
version_added: "1.0.0"
description:
  - Detects what C(cudnn-resolve detect) detects, on a host that needs Python 3.6 or newer and nothing else.
  - Changes nothing.
options:
  python:
    description:
      - The interpreter or the environment to look at, by its path, its name or its version.
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
- name: Ask what the host is
  cudnn_resolve.fleet.cudnn_facts:
    python: /opt/dl
  register: machine

- name: Show its driver
  ansible.builtin.debug:
    msg: "{{ machine.facts.driver }}"
"""

RETURN = r"""
facts:
  description: The facts as C(cudnn-resolve detect --format json) prints them; C(--facts) reads them.
  returned: success
  type: dict
"""
