# shellcheck shell=bash
# The services that a release uses, on loopback and under their public names. release/rehearsal sources this file. The services run
# the public ones' code, except for GitHub, which nginx plays with files. All output is in $services.
set -euo pipefail
# shellcheck source=kind/offline/settings.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../kind/offline/settings.sh"
loopback=$repository/release/loopback
services=$repository/target/rehearsal
programs=$parts/release
forge=https://github.com/tolerarch/tolerarch
issuer=https://token.actions.githubusercontent.com
started=()

# Prints the path of a tool of the release, which is built from its pinned source.
release_tool() { # NAME, DIRECTORY OF ITS MODULE
    (cd "$repository/release/tools/${2:-}" && go tool -n "$1")
}

# Builds the programs that Debian does not have, and the tools that run without a network later.
build_programs() (
    mkdir -p "$programs"
    export CGO_ENABLED=0
    build() { # DIRECTORY OF THE MODULE, PROGRAM, PACKAGE
        (cd "$1" && go build -trimpath -ldflags '-s -w' -o "$programs/$2" "$3")
    }
    build "$offline" buildkitd github.com/moby/buildkit/cmd/buildkitd
    build "$loopback" docker-buildx github.com/docker/buildx/cmd/buildx
    build "$loopback" oras oras.land/oras/cmd/oras
    build "$loopback" fulcio github.com/sigstore/fulcio
    build "$loopback" rekor github.com/sigstore/rekor-tiles/v2/cmd/rekor-server/posix
    build "$loopback" tesseract github.com/transparency-dev/tesseract/cmd/tesseract/posix
    build "$loopback" timestamps github.com/sigstore/timestamp-authority/v2/cmd/timestamp-server
    # Built as the scripts build them.
    unset CGO_ENABLED
    for tool in cosign syft; do release_tool "$tool" >/dev/null; done
    for tool in krew validate-krew-manifest; do release_tool "$tool" krew >/dev/null; done
    # SPDX's library, which shares no code with the program that writes the lists.
    python3 -m venv "$programs/python"
    "$programs/python/bin/pip" install --quiet --disable-pip-version-check --require-hashes --requirement "$loopback/requirements.txt"
)

start() { # NAME, COMMAND
    "${@:2}" >"$services/$1.log" 2>&1 </dev/null &
    started+=($!)
}

stop_services() {
    kill "${started[@]}" 2>/dev/null || true
    wait
}

# Waits until a command succeeds, which sends a request to the service that was started last.
await() { # NAME, COMMAND
    for _ in $(seq 100); do
        "${@:2}" >/dev/null 2>&1 && return
        kill -0 "${started[-1]}" 2>/dev/null || break
        sleep 0.2
    done
    tail -n 20 "$services/$1.log" >&2
    echo "$1 does not start" >&2
    return 1
}

create_key() { # FILE, MORE ARGUMENTS OF openssl genpkey
    openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1" "${@:2}"
}

create_authority() { # NAME, MORE ARGUMENTS OF openssl req
    openssl req -x509 -key "$1.key" -out "$1.pem" -days 2 -subj "/O=rehearsal/CN=$1" "${@:2}" \
        -addext basicConstraints=critical,CA:true,pathlen:0 -addext keyUsage=critical,keyCertSign,cRLSign
}

# Makes a certificate for all names. In this mount namespace it is trusted, and the names resolve to loopback.
take_names() {
    cd "$services"
    create_key tls.key
    create_authority tls
    create_key server.key
    openssl req -x509 -CA tls.pem -CAkey tls.key -key server.key -out server.pem -days 2 -subj /CN=rehearsal \
        -addext basicConstraints=critical,CA:false \
        -addext "subjectAltName=DNS:ghcr.io,DNS:registry.example.com,DNS:github.com,DNS:${issuer#https://}"
    cat /etc/ssl/certs/ca-certificates.crt tls.pem >trusted.pem
    cp /etc/hosts hosts
    echo "127.0.0.1 github.com ${issuer#https://}" >>hosts
    mount --bind trusted.pem /etc/ssl/certs/ca-certificates.crt
    mount --bind hosts /etc/hosts
    cd "$repository"
}

# Starts two registries. One is ghcr.io, and also the registry of a company, for this namespace and for the nodes of kind. The other
# one is a mirror of the images that the Dockerfile names.
start_registries() {
    docker network create kind >/dev/null
    docker run --detach --name ghcr --network kind --network-alias ghcr.io --network-alias registry.example.com \
        --volume "$services:/services:ro" \
        --env REGISTRY_HTTP_ADDR=:443 --env REGISTRY_HTTP_TLS_CERTIFICATE=/services/server.pem \
        --env REGISTRY_HTTP_TLS_KEY=/services/server.key registry:2 >/dev/null
    echo "$(docker inspect --format '{{.NetworkSettings.Networks.kind.IPAddress}}' ghcr) ghcr.io registry.example.com" >>"$services/hosts"
    docker run --detach --name mirror --publish 127.0.0.1:5000:5000 registry:2 >/dev/null
}

start_buildkit() {
    cat >"$services/buildkit.toml" <<CONFIG
root = "$engine/buildkit"
[grpc]
  address = ["unix://$engine/buildkit.sock"]
[worker.oci]
  binary = "$engine/bin/runc"
  snapshotter = "overlayfs"
[worker.containerd]
  enabled = false
[registry."docker.io"]
  mirrors = ["127.0.0.1:5000/docker.io"]
[registry."gcr.io"]
  mirrors = ["127.0.0.1:5000/gcr.io"]
[registry."127.0.0.1:5000"]
  http = true
CONFIG
    RUNC=$parts/docker/usr/sbin/runc LD_LIBRARY_PATH=$parts/docker/usr/lib/$(gcc -print-multiarch) \
        start buildkit "$programs/buildkitd" --config "$services/buildkit.toml"
    mkdir -p "$DOCKER_CONFIG/cli-plugins"
    ln -s "$programs/docker-buildx" "$DOCKER_CONFIG/cli-plugins"
    docker buildx create --name rehearsal --driver remote --use "unix://$engine/buildkit.sock" >/dev/null
    await buildkit docker buildx inspect
}

# Puts the images that the Dockerfile names into the mirror. It has the last base for both architectures.
push_bases() {
    local rust base=gcr.io/distroless/base-nossl-debian12:nonroot architecture both=()
    rust=$(sed -n 's/^FROM .*\(rust:[^ ]*\).*/\1/p' Dockerfile)
    push_base docker/dockerfile:1 docker.io/docker/dockerfile:1
    push_base "$rust" "docker.io/library/$rust"
    for architecture in amd64 arm64; do
        import_base "$architecture"
        push_base "$base" "$base-$architecture"
        both+=("127.0.0.1:5000/$base-$architecture")
    done
    docker buildx imagetools create --progress quiet --tag "127.0.0.1:5000/$base" "${both[@]}"
}

push_base() { # IMAGE, ITS NAME IN THE MIRROR
    docker tag "$1" "127.0.0.1:5000/$2"
    docker push --quiet "127.0.0.1:5000/$2" >/dev/null
    docker rmi "$1" "127.0.0.1:5000/$2" >/dev/null
}

# Starts github.com with the files of a release, and the issuer of tokens for its workflows.
start_forge() { # TAG, DIRECTORY OF THE FILES
    cd "$services"
    openssl genpkey -quiet -algorithm RSA -out issuer.key
    mkdir -p issuer/.well-known issuer/tokens
    create_token tolerarch/tolerarch "$1" >issuer/tokens/release
    create_token somebody/else "$1" >issuer/tokens/else
    create_token tolerarch/tolerarch v0.0.1 >issuer/tokens/older
    local modulus
    modulus=$(openssl rsa -in issuer.key -noout -modulus | sed 's/^Modulus=//' | basenc --base16 --decode | base64_url)
    echo "{\"keys\":[{\"kty\":\"RSA\",\"alg\":\"RS256\",\"use\":\"sig\",\"kid\":\"rehearsal\",\"n\":\"$modulus\",\"e\":\"AQAB\"}]}" \
        >issuer/.well-known/jwks
    echo "{\"issuer\":\"$issuer\",\"jwks_uri\":\"$issuer/.well-known/jwks\",\"id_token_signing_alg_values_supported\":[\"RS256\"]}" \
        >issuer/.well-known/openid-configuration
    cat >nginx.conf <<CONFIG
daemon off;
pid $services/nginx.pid;
user root;
events {}
http {
    access_log off;
    ssl_certificate $services/server.pem;
    ssl_certificate_key $services/server.key;
    client_body_temp_path $services/nginx;
    server {
        listen 127.0.0.1:443 ssl;
        server_name github.com;
        location ${forge#https://github.com}/releases/download/$1/ { alias $2/; }
    }
    server {
        listen 127.0.0.1:443 ssl;
        server_name ${issuer#https://};
        root $services/issuer;
    }
}
CONFIG
    start nginx nginx -c "$services/nginx.conf" -e stderr
    await nginx curl --fail --silent "$issuer/.well-known/jwks"
    cd "$repository"
}

base64_url() { basenc --base64url --wrap=0 | tr -d =; }

# Prints a token as GitHub issues it to a job that a tag has started.
create_token() { # REPOSITORY, TAG
    local head claims signature
    head=$(printf '{"alg":"RS256","kid":"rehearsal","typ":"JWT"}' | base64_url)
    claims=$(jq --null-input --compact-output --arg issuer "$issuer" --arg repository "$1" --arg ref "refs/tags/$2" '
        (now | floor) as $now | ("0123456789" * 4) as $commit |
        ($repository + "/.github/workflows/release.yaml@" + $ref) as $workflow | {
            iss: $issuer, aud: "sigstore", sub: ("repo:" + $repository + ":ref:" + $ref),
            iat: $now, nbf: $now, exp: ($now + 7200),
            repository: $repository, repository_id: "1", repository_visibility: "public",
            repository_owner: ($repository | split("/")[0]), repository_owner_id: "1",
            ref: $ref, sha: $commit, event_name: "push", workflow: "release",
            workflow_ref: $workflow, workflow_sha: $commit, job_workflow_ref: $workflow, job_workflow_sha: $commit,
            runner_environment: "github-hosted", run_id: "1", run_attempt: "1"
        }' | base64_url)
    signature=$(printf %s "$head.$claims" | openssl dgst -sha256 -sign issuer.key | base64_url)
    echo "{\"value\":\"$head.$claims.$signature\"}"
}

# Starts Sigstore: an authority that certifies signers, a log of its certificates, a log of signatures, and a timestamp authority. Then
# writes a command `cosign` that trusts these instead of the public ones, and has the usual arguments.
start_sigstore() {
    cd "$services"
    create_key fulcio.key -aes256 -pass pass:rehearsal
    create_authority fulcio -passin pass:rehearsal
    openssl ecparam -name prime256v1 -genkey -noout -out tesseract.key
    openssl genpkey -quiet -algorithm ED25519 -out rekor.key
    openssl pkey -in tesseract.key -pubout -out tesseract.pub
    openssl pkey -in rekor.key -pubout -out rekor.pub
    echo "oidc-issuers: {\"$issuer\": {issuer-url: \"$issuer\", client-id: sigstore, type: github-workflow}}" >fulcio.yaml

    local at=http://127.0.0.1
    start timestamps "$programs/timestamps" serve --host 127.0.0.1 --port 3004 --timestamp-signer memory --disable-ntp-monitoring
    await timestamps curl --fail --silent --output timestamps.pem $at:3004/api/v1/timestamp/certchain
    start rekor "$programs/rekor" serve --hostname 127.0.0.1 --http-port 3000 --grpc-port 3001 --http-metrics-port 3002 \
        --storage-dir rekor --signer-filepath rekor.key --checkpoint-interval 1s
    await rekor curl --fail --silent $at:3000/healthz
    start tesseract "$programs/tesseract" --http_endpoint 127.0.0.1:6962 --origin tesseract --storage_dir tesseract \
        --private_key tesseract.key --roots_pem_file fulcio.pem --ext_key_usages CodeSigning
    await tesseract curl --fail --silent $at:6962/ct/v1/get-roots
    start fulcio "$programs/fulcio" serve --host 127.0.0.1 --port 5555 --grpc-host 127.0.0.1 --grpc-port 5554 \
        --metrics-port 5553 --legacy-unix-domain-socket "$services/fulcio.sock" --config-path fulcio.yaml --ca fileca \
        --fileca-cert fulcio.pem --fileca-key fulcio.key --fileca-key-passwd rehearsal --fileca-watch=false --ct-log-url $at:6962
    await fulcio curl --fail --silent $at:5555/healthz

    local cosign since of
    cosign=$(release_tool cosign)
    since=start-time=$(date --utc --date=yesterday +%Y-%m-%dT%H:%M:%SZ)
    of=$since,operator=rehearsal
    "$cosign" trusted-root create --out trusted-root.json \
        --fulcio "url=$at:5555,certificate-chain=fulcio.pem" \
        --ctfe "url=$at:6962,public-key=tesseract.pub,$since" \
        --rekor "url=$at:3000,public-key=rekor.pub,origin=127.0.0.1,$since" \
        --tsa "url=$at:3004/api/v1/timestamp,certificate-chain=timestamps.pem"
    "$cosign" signing-config create --out signing-config.json \
        --fulcio "url=$at:5555,api-version=1,$of" \
        --rekor "url=$at:3000,api-version=2,$of" --rekor-config ANY \
        --tsa "url=$at:3004/api/v1/timestamp,api-version=1,$of" --tsa-config ANY
    cat >bin/cosign <<COSIGN
#!/bin/sh
command=\$1
shift
case \$command in
    sign* | attest*) set -- --signing-config $services/signing-config.json --trusted-root $services/trusted-root.json "\$@" ;;
    verify*) set -- --trusted-root $services/trusted-root.json "\$@" ;;
esac
exec $cosign "\$command" "\$@"
COSIGN
    chmod +x bin/cosign
    cd "$repository"
}
