# shellcheck shell=bash
# Versions, directories and functions. The scripts beside this file source it.
offline=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repository=$(cd "$offline/../.." && pwd)

# Programs, packages and root file systems. They take minutes to make, and depend only on versions.
parts=${KIND_OFFLINE_PARTS:-${XDG_CACHE_HOME:-$HOME/.cache}/tolerarch-kind}
# Data, socket and log of the Docker engine. The directory is removed when the engine stops.
engine=${KIND_OFFLINE_ENGINE:-$repository/target/kind/engine}
# The network namespace of the engine. Each directory has its own.
namespace=tolerarch-kind-$(cksum <<<"$engine" | cut -d' ' -f1)

# The kernel's interface for interpreters of other architectures. The entry of this engine has the name of the namespace.
# shellcheck disable=SC2034 # for the scripts that source this
binfmt=/proc/sys/fs/binfmt_misc

# Debian 12, as the systemd of 13 refuses cgroup v1.
debian=bookworm
# shellcheck disable=SC2034 # for the scripts that source this
kubernetes=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\)$/\1/p' "$repository/e2e/scenarios/controlplane/go.mod")

export DOCKER_HOST=unix://$engine/docker.sock DOCKER_CONFIG=$engine/config DOCKER_BUILDKIT=1
export PATH=$parts/bin:$parts/docker/usr/bin:$PATH

# Ends the script as not run if the engine cannot run.
needs_engine() { # COMMAND
    local missing
    missing=$("$offline/engine" missing)
    if [ -n "$missing" ]; then
        echo "$1: NOT run, this machine lacks: ${missing//$'\n'/, }" >&2
        exit 77
    fi
}

# Runs a command, and prints how long it took.
step() { # NAME, COMMAND
    local begun=$SECONDS
    "${@:2}"
    echo "$1: $((SECONDS - begun)) s"
}

# Runs a command in the network namespace. `ip netns exec` would mount a /sys without cgroups.
in_namespace() { nsenter --net="/run/netns/$namespace" "$@"; }

# Makes a root file system of Debian packages in $parts/NAME by mmdebstrap, unless there is one with the same packages. Standard input
# is a script that completes it.
root() { # NAME, VARIANT, PACKAGES, ARCHITECTURE
    local finish wanted
    finish=$(cat)
    wanted="$debian $2 $3 ${4:+$4 }$finish"
    [ "$(cat "$parts/$1.made-of" 2>/dev/null)" = "$wanted" ] && return
    rm -rf "${parts:?}/$1"
    mmdebstrap --quiet --variant="$2" --include="$3" ${4:+--architectures="$4"} --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --format=directory "$debian" "$parts/$1"
    (cd "$parts/$1" && eval "$finish")
    printf '%s\n' "$wanted" >"$parts/$1.made-of"
}

# Imports a root file system as an image.
import() { # NAME, TAG, CHANGES
    local changes=() change
    for change in "${@:3}"; do changes+=(--change "$change"); done
    tar -C "$parts/$1" -c . | docker import "${changes[@]}" - "$2" >/dev/null
}

# Labels the images in a file of `docker save` as arm64, which this version of Docker cannot do.
say_arm64() { # FILE
    local work config
    work=$(mktemp -d "$engine/context.XXXX")
    tar -C "$work" -xf "$1"
    for config in $(jq -r '.[].Config' "$work/manifest.json" | sort -u); do
        jq -c '.architecture = "arm64"' "$work/$config" >"$work/config"
        mv "$work/config" "$work/$config"
    done
    tar -C "$work" -cf "$1" .
    rm -rf "$work"
}

# Imports the base image of the Dockerfile for one architecture. Docker keeps only one platform of a tag.
import_base() { # ARCHITECTURE
    local base=gcr.io/distroless/base-nossl-debian12:nonroot file=$engine/base.tar
    import "distroless-$1" "$base" "ENV $path" 'USER 65532' 'ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt'
    if [ "$1" = arm64 ]; then
        docker save --output "$file" "$base"
        say_arm64 "$file"
        docker load --quiet --input "$file" >/dev/null
        rm "$file"
    fi
}
# PATH in the configuration of images.
path='PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'
