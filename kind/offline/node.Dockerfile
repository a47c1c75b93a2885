# A node of kind, as kind's images/base/Dockerfile and `kind build node-image` make it, of Debian packages and of programs
# built from Go modules. The files are kind's own.
FROM offline/node AS containerd
COPY containerd containerd-shim-runc-v2 ctr /usr/local/bin/

# Not unpacked, as kind does it: each node unpacks what it runs.
FROM containerd AS images
COPY import.toml images.tar /
RUN set -eu; \
    containerd --config /import.toml >/log 2>&1 & \
    until ctr version >/dev/null 2>&1; do sleep 0.1; done; \
    ctr --namespace k8s.io images import --all-platforms --no-unpack --digests /images.tar; \
    kill "$!"; wait "$!" || true

FROM containerd
COPY files /
COPY cni /opt/cni/bin
COPY kubernetes /usr/bin/kubernetes
COPY version /kind/version
COPY network.yaml /kind/manifests/default-cni.yaml
COPY --from=images /var/lib/containerd /var/lib/containerd
# The modes of files are lost in Go modules. Then as kind's Dockerfile: only what a node needs is started. Where nothing may
# raise limits or lower an OOM score, containerd must not try.
RUN set -eu; \
    chmod 755 /kind/bin/* /usr/local/bin/*; \
    for name in kubelet kubeadm kubectl; do ln -s kubernetes "/usr/bin/$name"; done; \
    ln -sf /usr/lib/systemd/systemd /sbin/init; \
    find /lib/systemd/system/sysinit.target.wants -name systemd-tmpfiles-setup.service -delete; \
    rm -f /lib/systemd/system/multi-user.target.wants/* /lib/systemd/system/local-fs.target.wants/* \
      /etc/systemd/system/*.wants/* /lib/systemd/system/basic.target.wants/* \
      /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl* \
      /etc/systemd/system/containerd-fuse-overlayfs.service; \
    systemctl enable kubelet.service containerd.service undo-mount-hacks.service; \
    systemctl mask systemd-binfmt.service; \
    echo ReadKMsg=no >>/etc/systemd/journald.conf; \
    mkdir -p /etc/cni/net.d /etc/kubernetes/manifests; \
    sed -i -e '/^OOMScoreAdjust/d' -e '/^Limit/d' /etc/systemd/system/containerd.service; \
    sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml; \
    ctr oci spec | jq '.hooks.createContainer += [{path: "/kind/bin/mount-product-files.sh"}] | del(.process.rlimits)' \
      >/etc/containerd/cri-base.json; \
    # From 1.35 on the kubelet refuses cgroup v1 unless it is told.
    echo 'KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service --fail-cgroupv1=false' >/etc/default/kubelet
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
