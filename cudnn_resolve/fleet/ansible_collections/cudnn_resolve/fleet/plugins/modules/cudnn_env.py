"""Documentation of an action plugin: see plugins/action of the same name."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: cudnn_env
short_description: Turns an environment of a host into that of a lock
version_added: "1.0.0"
description:
  - Makes the virtual environment O(path) hold the packages of a lock, or of what is resolved for the host from targets.
  - The files are fetched once, by the controller, and carried to the host, which needs no network, and Python 3.6 or newer.
  - What was there is moved aside before, and moved back where anything fails, the validation of the new environment included.
    A run that was cut off is put back by the next one.
options:
  path:
    description: The environment on the host, by its full path.
    type: path
    required: true
  state:
    description:
      - V(present) for the packages of O(lock), O(bundle) or O(targets).
      - V(previous) for what was there before the last change.
    type: str
    choices: [present, previous]
    default: present
  lock:
    description: A lock on the controller, C(pylock.toml), or the folder of a bundle.
    type: path
  bundle:
    description: The folder of a bundle on the controller that C(cudnn-resolve bundle) made.
    type: path
  targets:
    description: What is resolved for the host where there is no lock, such as C(torch>=2.4).
    type: list
    elements: str
  python:
    description: The interpreter of which a new environment is made; the default is one of the lock's version on PATH.
    type: str
  fetch:
    description:
      - V(controller) fetches the files once and carries them to every host, which then needs no network.
      - V(host) lets the host fetch them with its own pip, from the index that it is configured for.
    type: str
    choices: [controller, host]
    default: controller
  replace:
    description: Replace or undo an environment even where it holds packages which the lock does not; they are lost.
    type: bool
    default: false
  validate:
    description: Test the new environment, and put it back where it fails.
    type: bool
    default: true
requirements:
  - cudnn-resolve on the controller
author:
  - The cudnn-resolve authors (@cudnn-resolve)
attributes:
  check_mode:
    description: Says what would change, and changes nothing.
    support: full
  diff_mode:
    description: Lists the packages before and after.
    support: full
"""

EXAMPLES = r"""
- name: The environment of the lock
  cudnn_resolve.fleet.cudnn_env:
    path: /opt/dl
    lock: pylock.toml

- name: What fits this host
  cudnn_resolve.fleet.cudnn_env:
    path: /opt/dl
    targets: [torch, jax]

- name: What was there before
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
  description: What was put back of a run that was cut off.
  returned: success
  type: list
  elements: str
reverted:
  description: True where the environment was put back because its validation failed.
  returned: failure
  type: bool
"""
