"""Documentation of the action plugin of the same name in plugins/action."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_env
short_description: Makes an environment on a host match a lock
version_added: "1.0.0"
description:
  - Installs in the virtual environment O(path) the packages of a lock, or of a resolution of targets for the host.
  - The controller downloads the files once and copies them to the host, which needs no network, but Python 3.6 or newer.
  - The old environment is moved aside first, and moved back if anything fails, including the validation of the new environment.
    The next run puts back what an interrupted run has moved.
options:
  path:
    description: Full path of the environment on the host.
    type: path
    required: true
  state:
    description:
      - V(present) for the packages of O(lock), O(bundle) or O(targets).
      - V(previous) for the state before the last change.
    type: str
    choices: [present, previous]
    default: present
  lock:
    description: A lock on the controller, such as C(pylock.toml), or the folder of a bundle.
    type: path
  bundle:
    description: The folder of a bundle on the controller, made by C(cudnn-resolve bundle).
    type: path
  targets:
    description: Requirements to resolve for the host instead of a lock, such as C(torch>=2.4).
    type: list
    elements: str
  python:
    description: Interpreter for a new environment; the default is one on PATH with the version of the lock.
    type: str
  fetch:
    description:
      - V(controller) downloads the files once and copies them to every host, which then needs no network.
      - V(host) lets the host download them with its own pip, from its configured index.
    type: str
    choices: [controller, host]
    default: controller
  replace:
    description: Replace or undo an environment even if it holds packages that are not in the lock, which are lost.
    type: bool
    default: false
  validate:
    description: Test the new environment, and put the old one back if that fails.
    type: bool
    default: true
requirements:
  - cudnn-resolve on the controller
author:
  - The cudnn-resolve authors (@cudnn-resolve)
attributes:
  check_mode:
    description: Reports what would change, without changing anything.
    support: full
  diff_mode:
    description: Lists the packages before and after.
    support: full
"""

EXAMPLES = r"""
- name: Match the lock
  cudnn_resolve.fleet.cudnn_env:
    path: /opt/dl
    lock: pylock.toml

- name: Resolve for this host
  cudnn_resolve.fleet.cudnn_env:
    path: /opt/dl
    targets: [torch, jax]

- name: Undo the last change
  cudnn_resolve.fleet.cudnn_env:
    path: /opt/dl
    state: previous
"""

RETURN = r"""
path:
  description: The environment.
  returned: success
  type: str
  sample: /opt/dl
said:
  description: What was put back after an interrupted run.
  returned: success
  type: list
  elements: str
reverted:
  description: True if the old environment was put back because validation failed.
  returned: failure
  type: bool
"""
