# A node whose kubelet and containerd are programs for arm64. It has qemu for them. Programs in containers need the machine's
# binfmt_misc.
FROM offline/node-arm64
COPY qemu-aarch64-static kubelet containerd /usr/local/lib/arm64/
RUN set -eu; \
    for program in /usr/bin/kubelet /usr/local/bin/containerd; do \
      name=${program##*/}; arm64=/usr/local/lib/arm64; rm "$program"; \
      printf '#!/bin/sh\nexec %s -0 %s %s "$@"\n' "$arm64/qemu-aarch64-static" "$name" "$arm64/$name" >"$program"; \
      chmod 755 "$program"; \
    done
