//! Registries that cannot be run here, as the table of `testregistry` describes them: under their real names, and with
//! no more settings than the table says that they need. All pass the same checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use testregistry::personality::{
    Needs, PASSWORD, PERSONALITIES, Personality, RunningRegistry, USER,
};
use testregistry::{Internet, Pki, Request};

use super::*;
use crate::credentials::CredentialOwner;
use crate::registry::Pull;

/// A server with a personality, and a client.
struct PersonalityTest {
    personality: &'static Personality,
    running: RunningRegistry,
    registry: Registry,
    credential: Option<Credential>,
    owner: CredentialOwner,
    _internet: Internet,
    _directory: tempfile::TempDir,
}

impl PersonalityTest {
    /// Starts a server with a personality, and a client with the settings for these needs.
    async fn of(personality: &'static Personality, is_private: bool, needs: Needs) -> Self {
        let internet = Internet::start(Arc::new(Pki::new())).await;
        let running = personality.start(&internet, is_private).await;
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.crt");
        std::fs::write(&ca, internet.pki().ca_pem()).unwrap();
        // The authority of all hosts stands for those that a system trusts.
        let trusted = HostSettings {
            ca_file: Some(ca),
            ..HostSettings::default()
        };
        let mut hosts = BTreeMap::new();
        for host in personality.others().into_iter().chain([personality.host()]) {
            hosts.insert(host.to_owned(), trusted.clone());
        }
        if let Needs::TokenHosts(host) = needs {
            hosts.get_mut(personality.host()).unwrap().token_hosts = vec![host.to_owned()];
        }
        let proxies =
            Proxies::of(|name| (name == "HTTPS_PROXY").then(|| internet.proxy())).unwrap();
        let settings = Settings {
            hosts,
            proxies,
            ..Settings::default()
        };
        let registry = Registry::load(settings, registry_metrics()).unwrap();
        let credential = is_private.then(|| basic(PASSWORD));
        Self {
            personality,
            running,
            registry,
            credential,
            owner: CredentialOwner::Pod,
            _internet: internet,
            _directory: directory,
        }
    }

    fn image(&self, target: &str) -> ImageRef {
        let separator = if target.contains(':') { '@' } else { ':' };
        format!("{}{separator}{target}", self.personality.image)
            .parse()
            .unwrap()
    }

    async fn fetch(
        &self,
        target: &str,
        credential: Option<&Credential>,
    ) -> Result<ResolvedImage, Error> {
        let image = &self.image(target);
        self.registry.find(self.pull(image, credential)).await
    }

    fn pull<'a>(&self, image: &'a ImageRef, credential: Option<&'a Credential>) -> Pull<'a> {
        Pull {
            image,
            credential,
            owner: self.owner,
            namespace: 0,
            reached: None,
        }
    }

    /// Lists the differences between the table and what the client finds.
    async fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let credential = self.credential.as_ref();
        let both = Support::Index(platforms(&["linux/amd64", "linux/arm64"]));
        let single = Support::Single(platforms(&["linux/amd64"]));
        for (tag, support) in [("multi", both), ("single", single)] {
            let digest = self.running.digest_of(tag);
            let expected = ResolvedImage {
                digest: Digest::of_text(&digest),
                support,
                lacks_parts: false,
            };
            for target in [tag, &digest] {
                match self.fetch(target, credential).await {
                    Ok(found) if found == expected => {}
                    other => faults.push(format!("{target}: {other:?}")),
                }
            }
            let image = &self.image(tag);
            match self.registry.resolve(self.pull(image, credential)).await {
                Ok(None) => {}
                Ok(Some(digest)) if digest == expected.digest => {}
                other => faults.push(format!("HEAD of {tag}: {other:?}")),
            }
        }
        match self.fetch("absent", credential).await {
            Err(error) if matches!(error.cause(), Error::NotFound) => {}
            other => faults.push(format!("absent: {other:?}")),
        }
        if credential.is_some() {
            for other in [None, Some(basic("wrong"))] {
                match self.fetch("multi", other.as_ref()).await {
                    Err(Error::Denied(_)) => {}
                    result => faults.push(format!("with {other:?}: {result:?}")),
                }
            }
        }
        let may = self.personality.may_see_passwords();
        for (host, request) in self.running.requests() {
            if has_password(&request) && !(credential.is_some() && may.contains(&host)) {
                faults.push(format!(
                    "a password at {host}: {} {}",
                    request.method, request.path
                ));
            }
        }
        faults
    }
}

fn basic(password: &str) -> Credential {
    Credential::Basic {
        user: USER.into(),
        password: password.to_owned().into(),
    }
}

fn has_password(request: &Request) -> bool {
    let basic = request
        .authorization
        .as_deref()
        .is_some_and(|text| text.starts_with("Basic "));
    basic || request.form_value("password").is_some() || request.query.contains(PASSWORD)
}

/// Checks each personality for which `choose` returns a test.
async fn check_each(choose: impl AsyncFn(&'static Personality) -> Option<PersonalityTest>) {
    let mut faults = Vec::new();
    for personality in PERSONALITIES {
        let Some(test) = choose(personality).await else {
            continue;
        };
        for fault in test.faults().await {
            faults.push(format!("{}: {fault}\n", personality.name));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

#[tokio::test]
async fn public_images_need_only_the_tables_settings() {
    check_each(async |personality| {
        if personality.public {
            Some(PersonalityTest::of(personality, false, personality.needs).await)
        } else {
            None
        }
    })
    .await;
}

#[tokio::test]
async fn pods_passwords_go_only_to_their_registries() {
    check_each(async |personality| {
        if personality.private {
            Some(PersonalityTest::of(personality, true, personality.needs).await)
        } else {
            None
        }
    })
    .await;
}

#[tokio::test]
async fn operators_passwords_go_only_to_their_registries() {
    let operators = async |personality: &'static Personality| {
        let test = PersonalityTest::of(personality, true, personality.operator_needs).await;
        personality.private.then_some(PersonalityTest {
            owner: CredentialOwner::Operator,
            ..test
        })
    };
    check_each(operators).await;
}

/// Without the token host that the table says is needed, the lookup fails.
#[tokio::test]
async fn errors_name_each_token_host_that_must_be_configured() {
    let mut tried = 0;
    for personality in PERSONALITIES {
        for (owner, needs) in [
            (CredentialOwner::Pod, personality.needs),
            (CredentialOwner::Operator, personality.operator_needs),
        ] {
            let Needs::TokenHosts(host) = needs else {
                continue;
            };
            let test = PersonalityTest {
                owner,
                ..PersonalityTest::of(personality, true, Needs::Nothing).await
            };
            let error = test
                .fetch("multi", test.credential.as_ref())
                .await
                .unwrap_err();
            let text = error.to_string();
            let name = personality.name;
            assert!(matches!(error, Error::TokenHost { .. }), "{name}: {text}");
            assert!(text.contains("tokenHosts"), "{name}: {text}");
            assert!(text.contains(host), "{name}: {text}");
            tried += 1;
        }
    }
    assert!(tried > 2);
}
