#!/usr/bin/env bash
# south==1.1
# for ubuntu 22.04, x86_64, glibc 2.35, Python 3.10, driver 550.54.15, Tesla T4
# south 1.1: it is old; take 2.0
# CUDA 11.8 is not in the apt repository of ubuntu22.04: its libraries come from older, that of an older release, which serves for libraries alone
# the apt packages need root, which this user is not: hand the commands to an administrator
set -euo pipefail
PYTHON=${PYTHON:-/env/bin/python}
if command -v nvidia-smi >/dev/null 2>&1; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  if [ -n "$driver" ] && [ "$(printf '%s\n' 450.80.02 "$driver" | sort -V | head -n 1)" != 450.80.02 ]; then
    echo "driver $driver is older than 450.80.02, which this stack needs" >&2; exit 1
  fi
fi
SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi

# NVIDIA's repository older: install https://repo.example/older/keyring_1-1_all.deb, then `apt-get update`
KEYRING=$(mktemp --suffix=.deb)
URL=https://repo.example/older/keyring_1-1_all.deb
if command -v curl >/dev/null 2>&1; then curl -fsSLo "$KEYRING" "$URL"; else wget -qO "$KEYRING" "$URL"; fi
chmod 644 "$KEYRING"
$SUDO dpkg -i "$KEYRING"
$SUDO apt-get update

# CUDA libraries of the system, pinned
$SUDO apt-get install -y --no-install-recommends cuda-libraries-11-8=11.8.0-1 libcudnn8=8.7.0.84-1+cuda11.8

# an upgrade would replace them: these package names are shared by several CUDA versions
$SUDO apt-mark hold cuda-libraries-11-8 libcudnn8

# exact versions, without their own dependencies: the plan holds them
"$PYTHON" -m pip install --no-deps south==1.1 numpy==1.26.4
