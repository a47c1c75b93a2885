# Debian's docker-registry with its configuration, instead of registry:2.
FROM offline/registry
COPY registry.yml /etc/docker/registry/config.yml
VOLUME /var/lib/registry
EXPOSE 5000
ENTRYPOINT ["/usr/bin/docker-registry", "serve", "/etc/docker/registry/config.yml"]
