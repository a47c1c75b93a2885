//! Registries that cannot be run here, as the table of `testregistry` has them: by their real names, with nothing
//! configured but what the table says that they need. All pass the same checks.

use std::collections::BTreeMap;
use std::sync::Arc;

use testregistry::personality::{Needs, PASSWORD, PERSONALITIES, Personality, Staged, USER};
use testregistry::{Internet, Pki, Request};

use super::*;
use crate::credentials::CredentialOwner;
use crate::registry::Pull;

/// A personality on its stage, and a client of it.
struct Play {
    personality: &'static Personality,
    staged: Staged,
    registry: Registry,
    credential: Option<Credential>,
    owner: CredentialOwner,
    _internet: Internet,
    _directory: tempfile::TempDir,
}

impl Play {
    /// Stages a personality, with what it needs or without.
    async fn of(personality: &'static Personality, private: bool, needs: Needs) -> Self {
        let internet = Internet::start(Arc::new(Pki::new())).await;
        let staged = personality.stage(&internet, private).await;
        let directory = tempfile::tempdir().unwrap();
        let ca = directory.path().join("ca.crt");
        std::fs::write(&ca, internet.pki().ca_pem()).unwrap();
        // The authority of all hosts stands for those that a system trusts.
        let trusted = HostSettings {
            ca_file: Some(ca),
            ..HostSettings::default()
        };
        let named = |host: &str| (host.to_owned(), trusted.clone());
        let all = personality.others().into_iter().chain([personality.host()]);
        let mut hosts: BTreeMap<String, HostSettings> = all.map(named).collect();
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
        let credential = private.then(|| basic(PASSWORD));
        Self {
            personality,
            staged,
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

    async fn fetch(&self, target: &str, credential: Option<&Credential>) -> Result<Found, Error> {
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

    /// Lists the differences between the table and the personality.
    async fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let credential = self.credential.as_ref();
        let both = Support::Index(platforms(&["linux/amd64", "linux/arm64"]));
        let single = Support::Single(platforms(&["linux/amd64"]));
        for (tag, support) in [("multi", both), ("single", single)] {
            let digest = self.staged.digest_of(tag);
            let expected = Found {
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
                Ok(Some(told)) if told == expected.digest => {}
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
                    found => faults.push(format!("with {other:?}: {found:?}")),
                }
            }
        }
        let may = self.personality.may_see_passwords();
        for (host, request) in self.staged.requests() {
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

/// Checks each of the personalities that `choose` has a play for.
async fn judge(choose: impl AsyncFn(&'static Personality) -> Option<Play>) {
    let mut faults = Vec::new();
    for personality in PERSONALITIES {
        let Some(play) = choose(personality).await else {
            continue;
        };
        let found = play.faults().await;
        faults.extend(
            found
                .into_iter()
                .map(|fault| format!("{}: {fault}\n", personality.name)),
        );
    }
    assert!(faults.is_empty(), "\n{}", faults.concat());
}

#[tokio::test]
async fn public_images_are_read_with_nothing_but_what_the_table_names() {
    judge(async |it| {
        if it.public {
            Some(Play::of(it, false, it.needs).await)
        } else {
            None
        }
    })
    .await;
}

#[tokio::test]
async fn private_images_are_read_with_their_password_which_goes_nowhere_else() {
    judge(async |it| {
        if it.private {
            Some(Play::of(it, true, it.needs).await)
        } else {
            None
        }
    })
    .await;
}

#[tokio::test]
async fn private_images_are_read_with_a_password_of_the_operator_which_goes_nowhere_else() {
    let operators = async |it: &'static Personality| {
        let play = Play::of(it, true, it.operator_needs).await;
        it.private.then_some(Play {
            owner: CredentialOwner::Operator,
            ..play
        })
    };
    judge(operators).await;
}

/// Each token host that the table says is needed is needed.
#[tokio::test]
async fn a_token_host_that_is_not_known_is_named() {
    let mut tried = 0;
    for personality in PERSONALITIES {
        for (owner, needs) in [
            (CredentialOwner::Pod, personality.needs),
            (CredentialOwner::Operator, personality.operator_needs),
        ] {
            let Needs::TokenHosts(host) = needs else {
                continue;
            };
            let play = Play {
                owner,
                ..Play::of(personality, true, Needs::Nothing).await
            };
            let error = play
                .fetch("multi", play.credential.as_ref())
                .await
                .unwrap_err();
            let text = error.to_string();
            assert!(
                matches!(error, Error::TokenHost { .. }),
                "{}: {text}",
                personality.name
            );
            assert!(
                text.contains("tokenHosts") && text.contains(host),
                "{}: {text}",
                personality.name
            );
            tried += 1;
        }
    }
    assert!(tried > 2);
}
