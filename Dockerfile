# syntax=docker/dockerfile:1

# docker buildx build --platform linux/amd64,linux/arm64 .
#
# The compiler runs on the builder's architecture and cross-compiles, so nothing is emulated. Both stages are Debian 12, as the
# binary must not need a newer glibc than the base has. The toolchain is that of rust-toolchain.toml.
#
# Base images are named by tag, so that each build has their latest fixes. The provenance of a release names their digests.
FROM --platform=$BUILDPLATFORM rust:1.95.0-bookworm AS build
ARG TARGETARCH
WORKDIR /src

# aws-lc-rs needs a C compiler. On a builder of the target's architecture Debian installs the native gcc under the name of the
# cross compiler, so both cases use the same names.
RUN set -eu; \
    case "$TARGETARCH" in \
      amd64) gcc=gcc-x86-64-linux-gnu  libc=libc6-dev-amd64-cross target=x86_64-unknown-linux-gnu ;; \
      arm64) gcc=gcc-aarch64-linux-gnu libc=libc6-dev-arm64-cross target=aarch64-unknown-linux-gnu ;; \
      *) echo "no build for the architecture '$TARGETARCH'" >&2; exit 1 ;; \
    esac; \
    apt-get update; \
    apt-get install -y --no-install-recommends "$gcc" "$libc"; \
    rm -rf /var/lib/apt/lists/*; \
    rustup target add "$target"; \
    echo "$target" > /target

# Only src and crates are compiled. The other folders are needed, as Cargo.toml names them and --locked checks the whole workspace.
COPY Cargo.toml Cargo.lock ./
COPY crates crates
COPY src src
COPY e2e e2e
COPY benches benches
COPY fuzz fuzz
COPY release/program release/program
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    set -eu; \
    release/program "$(cat /target)" /; \
    case "$TARGETARCH" in amd64) gcc=x86_64-linux-gnu-gcc ;; arm64) gcc=aarch64-linux-gnu-gcc ;; esac; \
    cp -L "$($gcc -print-file-name=libgcc_s.so.1)" /libgcc_s.so.1

# The program alone: docker buildx build --target program --output type=local,dest=DIRECTORY .
FROM scratch AS program
COPY --from=build /tolerarch /tolerarch

# The base has glibc and the CA certificates, but no shell, no package manager and no OpenSSL. The binary also needs libgcc_s, which
# unwinds the stack. The base image with this library also has OpenSSL and C++, which are 3 MB more to pull.
FROM gcr.io/distroless/base-nossl-debian12:nonroot
COPY --from=build /libgcc_s.so.1 /usr/lib/libgcc_s.so.1
COPY --from=build /tolerarch /usr/local/bin/tolerarch
USER 65532:65532
EXPOSE 8443 8080
ENTRYPOINT ["/usr/local/bin/tolerarch"]
