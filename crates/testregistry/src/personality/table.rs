//! The table of registries. After a change run `UPDATE=1 cargo test --test real_registry documented`.

use super::{DigestHeader, Login, Move, Needs, Personality, Post, Storage};

/// A public registry without a login that follows the specification. The rows differ from it.
const PLAIN: Personality = Personality {
    name: "",
    image: "",
    needs: Needs::Nothing,
    operator_needs: Needs::Nothing,
    source: "",
    public: true,
    private: false,
    dialled: None,
    moves: &[],
    storage: None,
    blobs: None,
    login: Login::Nothing,
    post: Post::Accepted,
    fields: &["token"],
    expires_in: Some(300),
    digest: DigestHeader::Right,
    refusal: None,
};

/// A registry with public and private images, which issues tokens only for GET.
const BY_GET: Personality = Personality {
    private: true,
    post: Post::Refused(405),
    ..PLAIN
};

/// A registry with private images only.
const PRIVATE: Personality = Personality {
    public: false,
    ..BY_GET
};

const fn token(realm: &'static str, service: &'static str) -> Login {
    Login::Token {
        realm,
        service,
        challenges: &[],
    }
}

const WITHOUT_SERVICE: &str = r#"Bearer realm="{realm}",scope="{scope}""#;

/// One row for each registry, or for each way in which a product behaves.
pub const PERSONALITIES: &[Personality] = &[
    Personality {
        name: "Docker Hub",
        image: "docker.io/library/nginx",
        dialled: Some("registry-1.docker.io"),
        login: token("https://auth.docker.io/token", "registry.docker.io"),
        post: Post::Accepted,
        fields: &["token", "access_token"],
        blobs: Some("production.cloudfront.docker.com"),
        source: "docs.docker.com/reference/api/registry/auth; containerd/containerd#3291",
        ..BY_GET
    },
    Personality {
        name: "registry.k8s.io",
        image: "registry.k8s.io/metrics-server/metrics-server",
        moves: &[Move {
            status: 307,
            to: "europe-west1-docker.pkg.dev/k8s-artifacts-prod/images/metrics-server/metrics-server",
        }],
        blobs: Some("prod-registry-k8s-io-eu-central-1.s3.dualstack.eu-central-1.amazonaws.com"),
        source: "kubernetes/registry.k8s.io: cmd/archeio/internal/app/handlers.go, docs/request-handling.md",
        ..PLAIN
    },
    Personality {
        name: "k8s.gcr.io",
        image: "k8s.gcr.io/pause",
        moves: &[
            Move {
                status: 302,
                to: "registry.k8s.io/pause",
            },
            Move {
                status: 307,
                to: "europe-west1-docker.pkg.dev/k8s-artifacts-prod/images/pause",
            },
        ],
        blobs: Some("prod-registry-k8s-io-eu-central-1.s3.dualstack.eu-central-1.amazonaws.com"),
        source: "rpardini/docker-registry-proxy#164; kubernetes/k8s.io#4872",
        ..PLAIN
    },
    Personality {
        name: "GitHub",
        image: "ghcr.io/acme/app",
        login: token("https://ghcr.io/token", "ghcr.io"),
        blobs: Some("pkg-containers.githubusercontent.com"),
        source: "containerd/stargz-snapshotter#167",
        ..BY_GET
    },
    Personality {
        name: "Quay",
        image: "quay.io/acme/app",
        login: token("https://quay.io/v2/auth", "quay.io"),
        blobs: Some("cdn01.quay.io"),
        source: "quay/quay: endpoints/v2/v2auth.py, endpoints/v2/blob.py",
        ..BY_GET
    },
    Personality {
        name: "Google",
        image: "europe-docker.pkg.dev/acme/team/app",
        login: Login::Token {
            realm: "https://europe-docker.pkg.dev/v2/token",
            service: "",
            challenges: &[WITHOUT_SERVICE],
        },
        post: Post::Refused(404),
        source: "containerd/containerd: core/remotes/docker/authorizer.go",
        ..BY_GET
    },
    Personality {
        name: "Amazon ECR",
        image: "123456789012.dkr.ecr.eu-central-1.amazonaws.com/app",
        login: Login::Password {
            challenge: r#"Basic realm="https://123456789012.dkr.ecr.eu-central-1.amazonaws.com/",service="ecr.amazonaws.com""#,
        },
        digest: DigestHeader::Missing,
        refusal: Some(("text/plain; charset=utf-8", "Not Authorized\n")),
        blobs: Some("prod-eu-central-1-starport-layer-bucket.s3.eu-central-1.amazonaws.com"),
        source: "distribution/distribution#3792; enix/kube-image-keeper#142",
        ..PRIVATE
    },
    Personality {
        name: "Azure ACR",
        image: "acme.azurecr.io/app",
        login: token("https://acme.azurecr.io/oauth2/token", "acme.azurecr.io"),
        post: Post::Refused(400),
        fields: &["access_token"],
        expires_in: None,
        blobs: Some("eusreplstore1.blob.core.windows.net"),
        source: "containerd/containerd: core/remotes/docker/authorizer.go; Azure/acr: docs/Token-BasicAuth.md",
        ..BY_GET
    },
    Personality {
        name: "gitlab.com",
        image: "registry.gitlab.com/acme/app",
        login: token("https://gitlab.com/jwt/auth", "container_registry"),
        post: Post::Refused(404),
        blobs: Some("cdn.registry.gitlab-static.net"),
        source: "devcontainers/cli#1278; docs.gitlab.com/administration/packages/container_registry",
        ..BY_GET
    },
    Personality {
        name: "GitLab, self-managed",
        image: "registry.example.com/group/project",
        operator_needs: Needs::TokenHosts("gitlab.example.com"),
        login: token("https://gitlab.example.com/jwt/auth", "container_registry"),
        post: Post::Refused(404),
        source: "docs.gitlab.com/administration/packages/container_registry; SAP/open-ux-tools: `/jwt/auth`",
        ..BY_GET
    },
    Personality {
        name: "GitLab, self-managed, at a port",
        image: "gitlab.example.com:5050/group/project",
        login: token("https://gitlab.example.com/jwt/auth", "container_registry"),
        post: Post::Refused(404),
        source: "docs.gitlab.com/administration/packages/container_registry: an existing GitLab domain",
        ..BY_GET
    },
    Personality {
        name: "GitLab, self-managed, at another domain",
        image: "registry.example.com/group/project",
        needs: Needs::TokenHosts("gitlab.example.net"),
        operator_needs: Needs::TokenHosts("gitlab.example.net"),
        login: token("https://gitlab.example.net/jwt/auth", "container_registry"),
        post: Post::Refused(404),
        source: "docs.gitlab.com/administration/packages/container_registry: its own domain",
        ..PRIVATE
    },
    Personality {
        name: "GitLab dependency proxy",
        image: "gitlab.example.com/group/dependency_proxy/containers/nginx",
        login: token("https://gitlab.example.com/jwt/auth", "dependency_proxy"),
        post: Post::Refused(404),
        storage: Some(Storage {
            status: 302,
            host: "acme-gitlab.s3.eu-central-1.amazonaws.com",
            content_type: Some("binary/octet-stream"),
            heads: true,
        }),
        source: "moby/moby#50065",
        ..PRIVATE
    },
    Personality {
        name: "Gitea, Forgejo, with SERVE_DIRECT",
        image: "gitea.example.com/acme/app",
        login: Login::Token {
            realm: "https://gitea.example.com/v2/token",
            service: "",
            challenges: &[
                r#"Bearer realm="{realm}",service="container_registry",scope="*""#,
                r#"Basic realm="Gitea Container Registry""#,
            ],
        },
        expires_in: None,
        storage: Some(Storage {
            status: 307,
            host: "minio.example.com",
            content_type: None,
            heads: false,
        }),
        source: "go-gitea/gitea: routers/api/packages/container/container.go; go-gitea/gitea#32397",
        ..BY_GET
    },
    Personality {
        name: "DigitalOcean",
        image: "registry.digitalocean.com/acme/app",
        login: token(
            "https://api.digitalocean.com/v2/registry/auth",
            "registry.digitalocean.com",
        ),
        source: "apple/container#2268",
        ..PRIVATE
    },
    Personality {
        name: "Scaleway",
        image: "rg.fr-par.scw.cloud/acme/app",
        login: token(
            "https://api.scaleway.com/registry-internal/v1/regions/fr-par/tokens",
            "registry",
        ),
        source: "apple/container#2268; www.scaleway.com/en/docs/container-registry",
        ..BY_GET
    },
    Personality {
        name: "Alibaba",
        image: "registry.cn-hangzhou.aliyuncs.com/acme/app",
        login: token(
            "https://dockerauth.cn-hangzhou.aliyuncs.com/auth",
            "registry.aliyuncs.com:cn-hangzhou:26842",
        ),
        post: Post::Accepted,
        source: "containerd/containerd#1952",
        ..BY_GET
    },
    Personality {
        name: "Alibaba, Enterprise Edition",
        image: "acme-registry.cn-hangzhou.cr.aliyuncs.com/team/app",
        login: token(
            "https://dockerauth-ee.cn-hangzhou.aliyuncs.com/auth",
            "registry.aliyuncs.com:cn-hangzhou:cri-1",
        ),
        post: Post::Accepted,
        source: "containerd/containerd#1952; www.alibabacloud.com/help/en/acr",
        ..PRIVATE
    },
    Personality {
        name: "OpenShift, internal",
        image: "image-registry.openshift-image-registry.svc:5000/project/app",
        needs: Needs::CaFile,
        operator_needs: Needs::CaFile,
        login: Login::Token {
            realm: "https://image-registry.openshift-image-registry.svc:5000/openshift/token",
            service: "",
            challenges: &[WITHOUT_SERVICE],
        },
        post: Post::Anonymous,
        fields: &["token", "access_token"],
        source: "openshift/image-registry: pkg/dockerregistry/server/token.go, auth.go",
        ..PRIVATE
    },
    Personality {
        name: "Artifactory, by sub-domain",
        image: "docker-local.art.example.com/team/app",
        operator_needs: Needs::TokenHosts("art.example.com"),
        login: token(
            "https://art.example.com:443/artifactory/api/docker/docker-local/v2/token",
            "art.example.com:443",
        ),
        post: Post::Refused(401),
        source: "containerd/containerd#2166; containerd/containerd#6339",
        ..BY_GET
    },
    Personality {
        name: "Nexus",
        image: "nexus.example.com/team/app",
        login: Login::Password {
            challenge: r#"BASIC realm="Sonatype Nexus Repository Manager""#,
        },
        source: "sonatype/nexus-public#921",
        ..PRIVATE
    },
    Personality {
        name: "Harbor",
        image: "harbor.example.com/team/app",
        login: token(
            "https://harbor.example.com/service/token",
            "harbor-registry",
        ),
        source: "goharbor/harbor: src/server/middleware/v2auth/auth.go; goharbor/harbor#11271",
        ..BY_GET
    },
    Personality {
        name: "Harbor, proxy project",
        image: "harbor.example.com/hub/nginx",
        moves: &[Move {
            status: 301,
            to: "harbor.example.com/hub/library/nginx",
        }],
        login: token(
            "https://harbor.example.com/service/token",
            "harbor-registry",
        ),
        digest: DigestHeader::Blank,
        source: "goharbor/harbor: src/server/middleware/repoproxy/proxy.go",
        ..PLAIN
    },
    Personality {
        name: "Harbor, Artifactory or Gitea behind TLS that they do not know of",
        image: "harbor.example.com/team/app",
        login: token("http://harbor.example.com/service/token", "harbor-registry"),
        source: "goharbor/harbor#3933; moby/moby#38662",
        ..BY_GET
    },
    Personality {
        name: "Zot",
        image: "zot.example.com/team/app",
        login: Login::Password {
            challenge: r#"basic realm="Authorization Required""#,
        },
        source: "project-zot/zot: pkg/api/routes.go",
        ..PRIVATE
    },
    Personality {
        name: "IBM",
        image: "icr.io/acme/app",
        login: Login::Token {
            realm: "https://icr.io/oauth/token",
            service: "registry",
            challenges: &["Bearer realm={realm}, service={service}, scope={scope}"],
        },
        source: "cloud.ibm.com/docs/Registry: the challenge as cp.icr.io was seen to write it",
        ..BY_GET
    },
    Personality {
        name: "Red Hat",
        image: "registry.access.redhat.com/ubi9/ubi",
        digest: DigestHeader::Missing,
        source: "google/go-containerregistry#617; genuinetools/img#236",
        ..PLAIN
    },
    Personality {
        name: "NVIDIA",
        image: "nvcr.io/nvidia/k8s/dcgm-exporter",
        login: Login::Token {
            realm: "https://nvcr.io/proxy_auth",
            service: "",
            challenges: &[WITHOUT_SERVICE],
        },
        source: "oras-project/oras-dotnet#401, and challenges that were seen since",
        ..BY_GET
    },
    Personality {
        name: "Elastic",
        image: "docker.elastic.co/elasticsearch/elasticsearch",
        login: token("https://docker-auth.elastic.co/auth", "token-service"),
        source: "challenges as clients write them down",
        ..BY_GET
    },
    Personality {
        name: "oci.external-secrets.io",
        image: "oci.external-secrets.io/external-secrets/external-secrets",
        moves: &[Move {
            status: 301,
            to: "ghcr.io/external-secrets/external-secrets",
        }],
        login: token("https://ghcr.io/token", "ghcr.io"),
        post: Post::Refused(405),
        source: "external-secrets/external-secrets#5611",
        ..PLAIN
    },
    Personality {
        name: "lscr.io, and other names served by Scarf",
        image: "lscr.io/linuxserver/nginx",
        login: token("https://ghcr.io/token", "ghcr.io"),
        post: Post::Refused(405),
        source: "scarf-sh/gateway: src/Scarf/Gateway/Rule/Docker.hs; getwud/wud#143",
        ..PLAIN
    },
];
