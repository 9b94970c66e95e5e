#!/usr/bin/env bash
# south==1.1
# for ubuntu 22.04, x86_64, glibc 2.35, Python 3.10, driver 550.54.15, Tesla T4
# south 1.1: it is old; take 2.0
# CUDA 11.8 is not in the apt repository of ubuntu22.04: its libraries come from older, that of an older release, which serves for libraries alone
# the apt packages need root, which this user is not: hand the commands to an administrator
set -euo pipefail
SUM=7d05a53fb0e3db2cc50bc33608165010e813aa639ae495fed37993d27810faa1
if [ -z "${EDITED:-}" ] && grep -qxF "# --- what the sum above is of ---" "$0" 2>/dev/null; then
  if [ "$(sed '1,/^# --- what the sum above is of ---$/d' "$0" | sha256sum | cut -d ' ' -f 1)" != "$SUM" ]; then
    echo "this script is not as it was written; EDITED=1 runs it all the same" >&2; exit 1
  fi
fi
# --- what the sum above is of ---
PYTHON=${PYTHON:-/env/bin/python}
if command -v nvidia-smi >/dev/null 2>&1; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  if [ -n "$driver" ] && [ "$(printf '%s\n' 450.80.02 "$driver" | sort -V | head -n 1)" != 450.80.02 ]; then
    echo "driver $driver is older than 450.80.02, which this stack needs" >&2; exit 1
  fi
fi
SUDO=; if [ "$(id -u)" != 0 ]; then SUDO=sudo; fi
found=$("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case "$found" in 3.10) ;; [0-9]*) echo "$PYTHON is Python $found; this plan is for 3.10" >&2; exit 1 ;; esac

# NVIDIA's repository older: https://repo.example/older/, signed by the key 01234567
command -v gpg >/dev/null || { echo "gpg is needed to check the key of the repository: apt-get install gnupg" >&2; exit 1; }
KEY=$(mktemp)
{ curl -fsSLo "$KEY" https://repo.example/older/standin.pub || wget -qO "$KEY" https://repo.example/older/standin.pub; }
[ "$(gpg --batch --with-colons --import-options show-only --import "$KEY" | awk -F: '$1 == "pub" {p = 1} $1 == "fpr" && p {print $10; p = 0}')" = 0123456789ABCDEF0123456789ABCDEF01234567 ]
gpg --batch --dearmor <"$KEY" | $SUDO tee -a /usr/share/keyrings/cuda-archive-keyring.gpg >/dev/null
echo 'deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://repo.example/older/ /' | $SUDO tee /etc/apt/sources.list.d/cuda-older-older.list >/dev/null
rm "$KEY"
$SUDO apt-get update

# CUDA libraries of the system, pinned
$SUDO apt-get install -y --no-install-recommends cuda-libraries-11-8=11.8.0-1 libcudnn8=8.7.0.84-1+cuda11.8

# an upgrade would replace them: these package names are shared by several CUDA versions
$SUDO apt-mark hold cuda-libraries-11-8 libcudnn8

# exact versions, without their own dependencies: the plan holds them; no index was asked for hashes
"$PYTHON" -m pip install --no-deps south==1.1 numpy==1.26.4

# is everything as planned
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
        wrong.append("{} is {}, not {}".format(name, found or "not there", wanted))
for name in []:
    try:
        wrong.append("{} {} is still there".format(name, version(name)))
    except PackageNotFoundError:
        pass
if wrong:
    sys.exit("not as planned: " + "; ".join(wrong))
CUDNN_RESOLVE_END
echo 'done: the environment is as planned'
