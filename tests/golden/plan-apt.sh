#!/usr/bin/env bash
# south==1.1
# for ubuntu 22.04, x86_64, glibc 2.35, Python 3.10, driver 550.54.15, Tesla T4
# south 1.1: it is old; take 2.0
# the apt repository of ubuntu22.04 has no CUDA 11.8: its libraries come from older, the repository of an older release, which is safe for libraries only
# the apt packages need root, which this user is not: hand the commands to an administrator
set -euo pipefail
SUM=5c69cdcc24eac356a7c1d4b768645e3e60f41ab0e00d31c17abd1003821e8e24
if [ -z "${EDITED:-}" ] && grep -qxF "# --- the checksum above covers everything below this line ---" "$0" 2>/dev/null; then
  if [ "$(sed '1,/^# --- the checksum above covers everything below this line ---$/d' "$0" | sha256sum | cut -d ' ' -f 1)" != "$SUM" ]; then
    echo "this script was modified; set EDITED=1 to run it anyway" >&2; exit 1
  fi
fi
# --- the checksum above covers everything below this line ---
PYTHON=${PYTHON:-/env/bin/python}
if command -v nvidia-smi >/dev/null 2>&1; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  if [ -n "$driver" ] && [ "$(printf '%s\n' 450.80.02 "$driver" | sort -V | head -n 1)" != 450.80.02 ]; then
    echo "the NVIDIA driver is $driver; this plan needs 450.80.02 or newer" >&2; exit 1
  fi
fi
SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi
found=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$found" in 3.10) ;; [0-9]*) echo "$PYTHON is Python $found; this plan is for 3.10" >&2; exit 1 ;; esac

# NVIDIA's repository older: https://repo.example/older/, signed by the key 01234567
command -v gpg >/dev/null || { echo "gpg is needed to verify the repository key: apt-get install gnupg" >&2; exit 1; }
KEY=$(mktemp)
{ curl -fsSLo "$KEY" https://repo.example/older/standin.pub || wget -qO "$KEY" https://repo.example/older/standin.pub; }
[ "$(gpg --batch --with-colons --import-options show-only --import "$KEY" | awk -F: '$1 == "pub" {p = 1} $1 == "fpr" && p {print $10; p = 0}')" = 0123456789ABCDEF0123456789ABCDEF01234567 ]
gpg --batch --dearmor <"$KEY" | $SUDO tee -a /usr/share/keyrings/cuda-archive-keyring.gpg >/dev/null
echo 'deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://repo.example/older/ /' | $SUDO tee /etc/apt/sources.list.d/cuda-older-older.list >/dev/null
rm "$KEY"
$SUDO apt-get update

# CUDA libraries of the system, pinned
$SUDO apt-get install -y --no-install-recommends cuda-libraries-11-8=11.8.0-1 libcudnn8=8.7.0.84-1+cuda11.8

# prevents upgrades: several CUDA versions share these package names
$SUDO apt-mark hold cuda-libraries-11-8 libcudnn8

# exact versions, hashes unknown; --no-deps because the plan lists every dependency
"$PYTHON" -m pip install --no-deps south==1.1 numpy==1.26.4

# verify the result
"$PYTHON" -I - <<'CUDNN_RESOLVE_END'
import sys
try:
    from importlib.metadata import PackageNotFoundError, version
except ImportError:
    from pkg_resources import DistributionNotFound as PackageNotFoundError, get_distribution
    def version(name):
        return get_distribution(name).version
wrong = []
for name, wanted in {'south': '1.1', 'numpy': '1.26.4'}.items():
    try:
        found = version(name)
    except PackageNotFoundError:
        found = None
    if found != wanted and (found or "").partition("+")[0] != wanted.partition("+")[0]:
        wrong.append("{} is {}, not {}".format(name, found or "not installed", wanted))
for name in []:
    try:
        wrong.append("{} {} is still installed".format(name, version(name)))
    except PackageNotFoundError:
        pass
if wrong:
    sys.exit("the environment does not match the plan: " + "; ".join(wrong))
CUDNN_RESOLVE_END
echo 'done: the environment matches the plan'
