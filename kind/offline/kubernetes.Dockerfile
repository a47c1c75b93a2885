# The control plane, kube-proxy, and kubectl for the network between Pods. They are one program that is called by different names.
FROM offline/small
COPY kubernetes /usr/local/bin/kubernetes
RUN for name in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubectl; do \
      ln -s kubernetes "/usr/local/bin/$name"; \
    done
