#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs missing packages for the named parts: build, python (to build the Python package), lint,
# judges (PyTorch and transformers, for parity tests and benchmarks; Open MPI, for tests of several
# processes). System packages come from apt, Python packages go into .venv. If nothing is missing,
# the network is not used.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly kPackages=(
  g++ make cmake ninja-build git python3 xz-utils pkg-config dpkg-dev file
  libxsmm-dev libhwy-dev libfmt-dev libcli11-dev nlohmann-json3-dev
  zlib1g-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
readonly kOldestCmake=3.25 kOldestGcc=12

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

as_root() {
  if [ "$(id -u)" -eq 0 ]; then "$@"; else
    command -v sudo >/dev/null || die "to install packages, run as root or install sudo: $*"
    sudo "$@"
  fi
}

is_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Installs the named packages that are missing.
apt_install() {
  local package missing=()
  for package in "$@"; do is_installed "$package" || missing+=("$package"); done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
    "${missing[@]}" >&2
}

# Whether version $1 is at least $2.
is_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

make_venv() {
  [ -x .venv/bin/pip ] && return 0
  python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
  say "making a virtual environment in .venv"
  rm -rf .venv
  python3 -m venv .venv
}

has_python_headers() {
  local folder
  folder=$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [ -f "$folder/Python.h" ]
}

# Installs a requirements file into .venv unless the same file was installed there before.
pip_install() {
  local file=$1 stamp
  stamp=.venv/.installed-$(basename "$file" .txt)
  if [ -f "$stamp" ] && cmp -s "$file" "$stamp"; then return 0; fi
  make_venv
  say "installing $file into .venv"
  local torch
  torch=$(grep -E '^torch==' "$file" || true)
  # Only a fifth of ten thousand modules are ever imported, and Python compiles them then.
  if [ -n "$torch" ]; then .venv/bin/pip install -q --no-compile "$torch" >&2; fi
  .venv/bin/pip install -q --no-compile -r "$file" >&2
  cp "$file" "$stamp"
}

setup_build() {
  if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    apt_install "${kPackages[@]}"
    # Ubuntu 22.04's default compiler and CMake are too old. A newer compiler is in apt; CMake is
    # in PyPI.
    is_at_least "$(g++ -dumpversion)" "$kOldestGcc" || apt_install "g++-$kOldestGcc"
  else
    say "no apt here: expecting these, however named: ${kPackages[*]}"
  fi
  local cmake_version
  cmake_version=$(cmake --version 2>/dev/null | sed -n 's/^cmake version //p')
  is_at_least "${cmake_version:-0}" "$kOldestCmake" || pip_install requirements-cmake.txt
}

[ $# -gt 0 ] || die "name what to set up: build, python, lint, judges"
for part in "$@"; do
  case $part in
    build) setup_build ;;
    python)
      has_python_headers || apt_install python3-dev
      pip_install requirements-python.txt
      ;;
    lint) pip_install requirements-lint.txt ;;
    judges)
      has_python_headers || apt_install python3-dev  # torch.compile builds extension modules
      if command -v apt-get >/dev/null; then apt_install openmpi-bin; fi
      pip_install requirements.txt
      ;;
    *) die "unknown part '$part'; there are build, python, lint, judges" ;;
  esac
done
