# shellcheck shell=bash
# Sourced by the scripts beside it, which run in the root of a checkout and leave what they make in dist/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p dist

# Prints where a tool of release/tools/go.mod is, built by its pinned source.
tool() { # NAME
    (cd release/tools && go tool -n "$1")
}
