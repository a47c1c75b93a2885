FROM offline/small
COPY coredns /coredns
ENTRYPOINT ["/coredns"]
