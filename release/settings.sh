# shellcheck shell=bash
# Functions and settings. The scripts beside this file source it. They run in the root of a checkout, and write to dist/.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p dist

# Prints the path of a tool of release/tools/go.mod, which is built from its pinned source.
tool() { # NAME
    (cd release/tools && go tool -n "$1")
}
