#!/usr/bin/env bash
# Runs the scenarios that need nothing broken on kind: builds the image, creates a cluster and a registry, installs
# manifests/, pushes the images, runs the scenarios, and removes everything again.
#
#   kind/e2e.sh [--kubernetes v1.36.1] [FILTER]
#
# --kubernetes is a tag of kindest/node, otherwise kind's own; FILTER is a part of the names of scenarios, otherwise all.
# KEEP=1 leaves the cluster and the registry; the next run uses them again.
#
# Needs Docker, kind, kubectl and Rust.
set -euo pipefail
cd "$(dirname "$0")/.."

kubernetes=''
while [ $# -gt 0 ]; do
    case $1 in
        --kubernetes) kubernetes=${2:?a version} && shift 2 ;;
        -*) sed -n 's/^#   //p' "$0" >&2 && exit 2 ;;
        *) break ;;
    esac
done

name=tolerarch-e2e
registry=$name-registry
image=tolerarch:e2e
work=$(mktemp -d)

end() {
    rm -rf "$work"
    if [ -z "${KEEP:-}" ]; then
        kind delete cluster --name "$name"
        docker rm --force "$registry" >/dev/null
    fi
}
trap end EXIT

docker build --tag "$image" .

if ! kind get clusters | grep -qx "$name"; then
    kind create cluster --name "$name" --config kind/cluster.yaml ${kubernetes:+--image "kindest/node:$kubernetes"}
fi
kind get kubeconfig --name "$name" >"$work/kubeconfig"
export KUBECONFIG=$work/kubeconfig
kind load docker-image "$image" --name "$name"

# On port 443, which is open in the shipped network policy.
if ! docker inspect "$registry" >/dev/null 2>&1; then
    docker run --detach --name "$registry" --network kind --publish 127.0.0.1::443 \
        --env REGISTRY_HTTP_ADDR=:443 registry:2 >/dev/null
fi
address=$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' "$registry"):443
push=$(docker port "$registry" 443/tcp)

cat >"$work/config.yaml" <<CONFIG
tls:
  mode: managed
registries:
  hosts:
    "$address": {plainHttp: true}
CONFIG
cp -r manifests "$work/manifests"
cat >"$work/kustomization.yaml" <<OVERLAY
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [manifests]
configMapGenerator:
  - {name: tolerarch, namespace: tolerarch, behavior: merge, files: [config.yaml]}
images:
  - {name: ghcr.io/tolerarch/tolerarch, newName: ${image%:*}, newTag: ${image#*:}}
OVERLAY
kubectl apply --server-side --validate=strict --kustomize "$work"
kubectl --namespace tolerarch rollout status --timeout=5m deployment/tolerarch

E2E_TARGET=cluster E2E_REGISTRY=$address E2E_PUSH=$push cargo test --locked -p e2e -- "$@"
