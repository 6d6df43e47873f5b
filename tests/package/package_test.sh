#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests of packaging, one a name; see CMakeLists.txt. Usage: package_test.sh NAME BUILD.
set -euo pipefail
name=$1
build=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$build/package
prefix=$work/prefix
mkdir -p "$work"
cd "$work"

fail() { echo "package.$name: $*" >&2; exit 1; }

# Runs the user's program and expects its one line.
run() { [ "$("$@")" = "coda $VERSION" ] || fail "the program said something else"; }

case $name in
  install)
    rm -rf "$prefix"
    "$CMAKE" --install "$build" --prefix "$prefix" > install.log
    # The public headers as they are, and no others.
    diff -r "$here/../../include/coda" "$prefix/include/coda"
    [ "$(ls "$prefix/include")" = coda ] || fail "include/ has more than coda/"
    [ "$("$prefix/bin/coda" --version)" = "coda $VERSION" ] || fail "the command does not run"
    ;;
  find_package)
    rm -rf found
    "$CMAKE" -G Ninja -S "$here/consumer" -B found -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" > found.log
    "$CMAKE" --build found >> found.log || { cat found.log; exit 1; }
    run found/consumer
    ;;
  guide)
    # docs/cpp.md as it stands there: its project, and its blocks as one program.
    rm -rf guide
    mkdir -p guide/run
    # block PAGE BEGIN: what stands between the fences that open so.
    block() {
      awk -v begin="\`\`\`$2" '$0 == begin { on = 1; next } $0 == "```" { on = 0 } on' \
        "$here/../../$1"
    }
    block docs/cpp.md cmake > guide/CMakeLists.txt
    block docs/cpp.md cpp > guide/main.cc
    "$CMAKE" -G Ninja -S guide -B guide/build -DCMAKE_PREFIX_PATH="$prefix" \
      -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="-Wall -Wextra -Wpedantic -Werror" > guide.log
    "$CMAKE" --build guide/build >> guide.log || { cat guide.log; exit 1; }
    (cd guide/run && ../build/mine > ../said)
    line=$(grep -n 'linear(h, down);' guide/main.cc | cut -d: -f1)
    grep -q "built at main.cc:$line)" "$here/../../docs/cpp.md" || fail "the error is in line $line"
    grep -q "main.cc:$line)" guide/said || fail "the error has another line"
    awk '/^loss/ { last = $2 } END { exit !(last < 4) }' guide/said || fail "nothing is learned"
    grep -q "characters of CUDA" guide/said || fail "no kernels"
    [ -e guide/run/run/latest/model.safetensors ] || fail "no checkpoint"
    # README's program in C++ and the one as text.
    block README.md cpp > guide/main.cc
    "$CMAKE" --build guide/build >> guide.log || { cat guide.log; exit 1; }
    guide/build/mine > said
    grep -q __global__ said || fail "README's program prints no kernel"
    block README.md coda > guide/readme.coda
    "$prefix/bin/coda" check guide/readme.coda --sizes M=100,V=128,D=64 > said ||
      { cat said; exit 1; }
    ;;
  pkg_config)
    export PKG_CONFIG_PATH
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name coda.pc)")
    [ "$(pkg-config --modversion coda)" = "$VERSION" ] || fail "the version is another"
    # shellcheck disable=SC2046 # several words
    "$CXX" -std=c++20 "$here"/consumer/*.cc -o by_pkg_config $(pkg-config --cflags --libs coda)
    LD_LIBRARY_PATH=$(pkg-config --variable=libdir coda) run ./by_pkg_config
    ;;
  subproject)
    rm -rf sub
    "$CMAKE" -G Ninja -S "$here/subproject" -B sub -DCMAKE_CXX_COMPILER="$CXX" > sub.log
    "$CMAKE" --build sub --target program_objects >> sub.log || { cat sub.log; exit 1; }
    # shellcheck disable=SC2046 # several words
    "$CXX" $(find sub -name 'main.cc.o' -o -name 'net.cc.o') -o in_subfolder \
      "$build"/libcoda.so -Wl,-rpath,"$build"
    run ./in_subfolder
    ;;
  deb)
    rm -f ./*.deb
    "${CMAKE%cmake}cpack" --config "$build/CPackConfig.cmake" -B "$work" > deb.log
    dpkg -c ./coda-cpp_"${VERSION}"*.deb > deb_files
    for file in /usr/bin/coda /usr/include/coda/coda.h /coda.pc /codaConfig.cmake \
      "/libcoda.so.$VERSION"; do
      grep -q "$file\$" deb_files || fail "the package has no $file"
    done
    dpkg -f ./coda-cpp_"${VERSION}"*.deb Depends | grep -q libgomp1 || fail "depends on too little"
    ;;
  exports)
    # Only what public headers declare: names in namespace coda itself, of no inner part.
    nm -DC --defined-only "$build/libcoda.so" | awk '{$1 = $2 = ""; print}' > exported
    grep -q 'coda::compile(' exported || fail "compile() is not exported"
    ! grep -E 'coda::(cpu|gpu|measure|program|plan)::|libxsmm|nlohmann|fmt::' exported ||
      fail "these are no one's business"
    readelf -d "$build/libcoda.so" | grep -q "SONAME.*libcoda.so.${VERSION%.*}]" || fail "SONAME"
    ;;
esac
