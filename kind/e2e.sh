#!/usr/bin/env bash
# Runs the scenarios that need a cluster, and those that need real nodes, on kind. The script builds the image, creates a cluster
# and registries, installs manifests/, runs the scenarios, which push their images, and removes everything.
#
#   kind/e2e.sh [--kubernetes v1.36.1] [--image IMAGE] [FILTER]
#   kind/e2e.sh --offline [--program target/release/tolerarch] [FILTER]
#
# --kubernetes is a tag of kindest/node; the default is kind's. --image is an existing image, which is used instead of a build.
# FILTER is a part of the names of scenarios; the default is all. KEEP=1 keeps the cluster and the registries, and the next run
# uses them again. Needs Docker (before version 23 with DOCKER_BUILDKIT=1), kind, kubectl, Rust and Go.
#
# The scenario of the chart begins with the previous release, built from the commit in release/before, see kind/release-before.
#
# --offline needs no Docker and no container registry: it makes everything from packages, see kind/README.md. --program makes
# the image from a built program instead of the Dockerfile. Exits with 77 if the engine cannot run.
set -euo pipefail
cd "$(dirname "$0")/.."

kubernetes='' image='' offline='' program=''
while [ $# -gt 0 ]; do
    case $1 in
        --kubernetes) kubernetes=${2:?a version} && shift 2 ;;
        --image) image=${2:?an image} && shift 2 ;;
        --offline) offline=1 && shift ;;
        --program) program=$(realpath "${2:?a program}") && shift 2 ;;
        -*) sed -n 's/^#   //p' "$0" >&2 && exit 2 ;;
        *) break ;;
    esac
done

# Prints the names of the scenarios that will run. They include those of two architectures if E2E_EMULATED names a worker.
names() { # FILTER
    E2E_TARGET=cluster E2E_KIND=1 cargo test --quiet --locked --workspace --test scenarios -- --list "$@"
}

if [ -n "$offline" ]; then
    # shellcheck source=kind/offline/settings.sh
    . kind/offline/settings.sh
    needs_engine 'kind/e2e.sh --offline'
    program_of() { # IMAGE, ARCHITECTURE, FILE
        local container
        container=$(docker create --platform "linux/$2" "$1")
        docker cp "$container:/usr/local/bin/tolerarch" "$3"
        docker rm "$container" >/dev/null
    }
    step "programs and packages" kind/offline/parts
    step "tests" cargo test --locked --workspace --test scenarios --no-run
    names=$(E2E_EMULATED=worker names "$@")
    before='' emulated=''
    if [[ $names == *chart::* ]]; then
        before=$parts/before
        step "release before" kind/release-before "$before" program
    fi
    if [[ $names == *architectures::* || $names == *arm64* ]]; then emulated=1; fi
    trap 'kind/offline/engine stop' EXIT
    step "engine" kind/offline/engine start
    step "images" kind/offline/images
    if [ -n "$program" ]; then
        export E2E_TOLERARCH=$program
        step "image of $program" kind/offline/image-of "$program" tolerarch:e2e amd64
        [ -z "$emulated" ] || step "program for arm64" kind/offline/program-arm64 "$engine/tolerarch"
    else
        step "builder of the Dockerfile" kind/offline/builder
        import_base amd64
        step "Dockerfile" docker build --quiet --tag tolerarch:e2e .
        # The scenarios also run the same program as a command.
        export E2E_TOLERARCH=$engine/tolerarch-amd64
        program_of tolerarch:e2e amd64 "$E2E_TOLERARCH"
        if [ -n "$emulated" ]; then
            import_base arm64
            step "Dockerfile for arm64" docker build --quiet --platform linux/arm64 --tag tolerarch:arm64 .
            program_of tolerarch:arm64 arm64 "$engine/tolerarch"
        fi
    fi
    [ -z "$emulated" ] || kind/offline/image-of "$engine/tolerarch" tolerarch:e2e-arm64 arm64
    if [ -n "$before" ]; then
        kind/offline/image-of "$before/tolerarch" tolerarch:before amd64 "$before/repository/Dockerfile"
        export E2E_BEFORE=$before/repository
    fi
    EMULATED=$emulated CARGO_NET_OFFLINE=true in_namespace "$0" --kubernetes "$kubernetes" --image tolerarch:e2e "$@"
    exit
fi

name=tolerarch-e2e
emulated=${EMULATED:+$name-worker3}
work=$(mktemp -d)

end() {
    rm -rf "$work"
    if [ -z "${KEEP:-}" ]; then
        kind delete cluster --name "$name"
        # The scenarios start the mirror and the cache.
        docker rm --force "$name-registry" "$name-private" "$name-mirror" "$name-cache" >/dev/null 2>&1 || true
    fi
}
trap end EXIT

if [ -z "$image" ]; then
    image=tolerarch:e2e
    docker build --tag "$image" .
fi
names=$(E2E_EMULATED='' names "$@")
if [ -z "${E2E_BEFORE:-}" ] && [[ $names == *chart::* ]]; then
    kind/release-before "$work/before"
    docker build --tag tolerarch:before "$work/before/repository"
    export E2E_BEFORE=$work/before/repository
fi

if ! kind get clusters | grep -qx "$name"; then
    node=kindest/node:$kubernetes
    sed "${kubernetes:+s|^  - role: .*|&\n    image: $node|}" kind/cluster.yaml >"$work/cluster.yaml"
    [ -z "$emulated" ] || sed "s|@IMAGE@|$node-arm64|" kind/offline/worker-arm64.yaml >>"$work/cluster.yaml"
    kind create cluster --name "$name" --config "$work/cluster.yaml"
fi
kind get kubeconfig --name "$name" >"$work/kubeconfig"
export KUBECONFIG=$work/kubeconfig
if [ -n "$emulated" ]; then
    # The worker is cordoned, and only scenarios of two architectures uncordon it. Its kubelet is slow, and kind does not wait for
    # it.
    kubectl wait --for=create --timeout=3m "node/$emulated"
    kubectl cordon "$emulated"
    kind load docker-image "$image-arm64" --name "$name" --nodes "$emulated"
    docker exec "$emulated" ctr --namespace k8s.io images tag "docker.io/library/$image-arm64" "docker.io/library/$image"
fi
others=$(kind get nodes --name "$name" | grep -vx "${emulated:-none}" | paste -sd,)
kind load docker-image "$image" --name "$name" --nodes "$others"

# Two registries, one of which requires a password. They listen on port 443, which the shipped network policy opens.
registry() { # NAME, MORE ARGUMENTS OF docker run
    docker inspect "$1" >/dev/null 2>&1 || docker run --detach --name "$1" --network kind --publish 127.0.0.1::443 \
        --env REGISTRY_HTTP_ADDR=:443 "${@:2}" registry:2 >/dev/null
}
address() { # NAME
    echo "$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$1"):443"
}
registry "$name-registry"
registry "$name-private" --volume "$PWD/kind/htpasswd:/htpasswd:ro" --env REGISTRY_AUTH=htpasswd \
    --env REGISTRY_AUTH_HTPASSWD_REALM=private --env REGISTRY_AUTH_HTPASSWD_PATH=/htpasswd
address=$(address "$name-registry")
private=$(address "$name-private")
# Neither registry has a certificate.
for node in $(kind get nodes --name "$name"); do
    for host in "$address" "$private"; do
        docker exec "$node" mkdir -p "/etc/containerd/certs.d/$host"
        echo "server = \"http://$host\"" |
            docker exec --interactive "$node" tee "/etc/containerd/certs.d/$host/hosts.toml" >/dev/null
    done
done

cat >"$work/config.yaml" <<CONFIG
tls:
  mode: managed
registries:
  hosts:
    "$address": {plainHttp: true}
    "$private": {plainHttp: true}
CONFIG
cp -r manifests "$work/manifests"
cat >"$work/kustomization.yaml" <<OVERLAY
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [manifests]
components: [manifests/controller, manifests/pull-secrets]
configMapGenerator:
  - {name: tolerarch, namespace: tolerarch, behavior: merge, files: [config.yaml]}
images:
  - {name: ghcr.io/tolerarch/tolerarch, newName: ${image%:*}, newTag: ${image#*:}}
patches:
  # One of the two workers is the pool. Without this toleration both replicas would run on the other one.
  - target: {kind: Deployment, namespace: tolerarch}
    patch: |
      - {op: add, path: /spec/template/spec/tolerations, value: [{key: tolerarch.io/multi-arch, operator: Exists}]}
OVERLAY
kubectl apply --server-side --validate=strict --kustomize "$work"
for deployment in $(kubectl --namespace tolerarch get deployments --output name); do
    kubectl --namespace tolerarch rollout status --timeout=5m "$deployment"
done

export E2E_TARGET=cluster E2E_KIND=1 E2E_EMULATED=$emulated E2E_IMAGE=$image E2E_OVERLAY=$work
export E2E_REGISTRY=$address E2E_PUSH E2E_PRIVATE_REGISTRY=$private E2E_PRIVATE_PUSH
E2E_PUSH=$(docker port "$name-registry" 443/tcp)
E2E_PRIVATE_PUSH=$(docker port "$name-private" 443/tcp)
cargo test --locked --workspace --test scenarios -- "$@"
