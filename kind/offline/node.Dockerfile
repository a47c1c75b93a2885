# A node of kind, like that of kind's images/base/Dockerfile and `kind build node-image`, but from Debian packages and from programs
# that are built from Go modules. The files are kind's.
FROM offline/node AS containerd
COPY containerd containerd-shim-runc-v2 ctr /usr/local/bin/

# The images are imported but not unpacked, as in kind. Each node unpacks the images that it runs.
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
# Go modules lose the modes of files, so these are set first. As in kind's Dockerfile, only services that a node needs are started.
# Some machines allow no process to raise limits or to lower an OOM score, so containerd must not try.
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
    # From 1.35 on kubelet refuses cgroup v1 without this flag.
    echo 'KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service --fail-cgroupv1=false' >/etc/default/kubelet
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
