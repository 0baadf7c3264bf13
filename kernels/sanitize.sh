#!/bin/sh
# Runs tests/ops on kernels built with the address and undefined-behaviour sanitizers.
#
#   kernels/sanitize.sh [pytest arguments]     PYTHON=... chooses the interpreter, which must have the test extra
#
# The sanitized module stands in for the installed one in this process only.
set -eu
cd "$(dirname "$0")/.."
python=$(command -v "${PYTHON:-python}")
build=build/sanitize

cmake -S kernels -B "$build" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DLG_SANITIZE=ON -DLG_WERROR=ON \
  -DPython_EXECUTABLE="$python" >/dev/null
cmake --build "$build" --parallel 2 >/dev/null

# libstdc++ too: the sanitizer looks for __cxa_throw when it starts, before the module brings it.
# Python itself never frees all, so leaks say nothing.
runtime="$(g++ -print-file-name=libasan.so) $(g++ -print-file-name=libstdc++.so)"
LD_PRELOAD="$runtime" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 BUILD="$build" \
  "$python" - tests/ops -q -p no:cacheprovider "$@" <<'EOF'
import glob, importlib.util, os, sys

import pytest

name = "lightning_gnnload.ops._kernels"
[path] = glob.glob(os.environ.pop("BUILD") + "/_kernels*.so")
spec = importlib.util.spec_from_file_location(name, path)
sys.modules[name] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[name])
sys.exit(pytest.main(sys.argv[1:]))
EOF
echo "sanitize: tests/ops passed without a finding"
