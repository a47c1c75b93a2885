# Debian's docker-registry in place of registry:2, with its configuration.
FROM offline/registry
COPY registry.yml /etc/docker/registry/config.yml
VOLUME /var/lib/registry
EXPOSE 5000
ENTRYPOINT ["/usr/bin/docker-registry", "serve", "/etc/docker/registry/config.yml"]
