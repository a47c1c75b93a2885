//! Connections that are kept for the next request, and end just then.

use testregistry::Request;

use super::*;

fn is_blob(request: &Request) -> bool {
    request.kind == Kind::Blob
}

type End = (&'static str, fn() -> Fault);

/// Ends of a connection: FIN, and TLS without `close_notify`; RST.
const ENDS: [End; 2] = [("closed", Fault::close), ("reset", Fault::reset)];

#[tokio::test]
async fn what_a_kept_connection_does_not_answer_is_asked_once_more() {
    for (is_plain, (end, fault)) in [true, false]
        .into_iter()
        .flat_map(|plain| ENDS.map(|end| (plain, end)))
    {
        let case = format!("{end}, plain HTTP: {is_plain}");
        let builder = Remote::builder();
        let remote = if is_plain {
            builder.plain_http()
        } else {
            builder
        }
        .start()
        .await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        let image: ImageRef = repo.reference("v1").parse().unwrap();
        let both = Ok(Support::Single(platforms(&["linux/amd64"])));
        let (client, _dir) = client(&remote);
        let traces = Traces::default();
        let fetch = async || trace::scope(Some(&traces), &image, client.fetch(&image, None)).await;

        repo.fault(Some(fault().only_blobs().first(1)));
        let found = fetch().await.map(|found| found.support);
        assert_eq!(
            kind(&found),
            kind(&both),
            "{case}: between manifest and config"
        );
        let outcomes: Vec<_> = traces
            .of(&image)
            .requests
            .iter()
            .map(|request| (request.kind, request.outcome))
            .collect();
        let expected = [
            (RequestKind::Manifest, Some(Ok(200))),
            (RequestKind::Config, Some(Err("closed"))),
            (RequestKind::Config, Some(Ok(200))),
        ];
        assert_eq!(outcomes, expected, "{case}");

        client.head(&image, None).await.unwrap();
        remote.forget_requests();
        repo.fault(Some(fault().only_manifests().only_get().first(1)));
        let found = fetch().await.map(|found| found.support);
        assert_eq!(kind(&found), kind(&both), "{case}: between HEAD and GET");
        assert_eq!(
            remote.count(|request| request.kind == Kind::Manifest),
            2,
            "{case}"
        );
    }
}

#[tokio::test]
async fn a_fresh_connection_that_does_not_answer_is_a_fault() {
    for (end, fault) in ENDS {
        let remote = Remote::start().await;
        let repo = remote.repo("team/app");
        repo.image("linux/amd64", Some("v1"));
        repo.fault(Some(fault().first(1)));
        assert_eq!(
            kind(&ask(&remote, &repo, "v1").await),
            "unreachable",
            "{end}"
        );
        assert_eq!(remote.requests().len(), 1, "{end}: it is not asked again");

        remote.forget_requests();
        repo.fault(Some(fault().only_blobs()));
        assert_eq!(
            kind(&ask(&remote, &repo, "v1").await),
            "unreachable",
            "{end}: the fresh one as well"
        );
        assert_eq!(remote.count(is_blob), 2, "{end}: once more, and no more");
    }
}

#[tokio::test]
async fn only_a_request_for_a_token_that_uses_nothing_up_is_sent_twice() {
    let password = || Credential::Basic {
        user: "user".into(),
        password: "password".to_owned().into(),
    };
    let identity = || Credential::Identity("identity".to_owned().into());
    for (case, auth, credential, expected) in [
        ("GET", Auth::bearer(), None, 2),
        (
            "POST of a password",
            Auth::bearer().credentials("user", "password").oauth(),
            Some(password()),
            2,
        ),
        (
            "POST of a refresh token",
            Auth::bearer().identity_token("identity"),
            Some(identity()),
            1,
        ),
    ] {
        let remote = Remote::start().await;
        let repo = remote.repo("team/app");
        repo.index(Some("v1"), BOTH);
        repo.require(auth.clone());
        auth.fault(Some(Fault::close().first(1)));
        let (client, _dir) = client(&remote);
        let image: ImageRef = repo.reference("v1").parse().unwrap();
        let found = client.fetch(&image, credential.as_ref()).await;
        assert_eq!(found.is_ok(), expected == 2, "{case}: {:?}", found.err());
        assert_eq!(
            remote.count(|request| request.kind == Kind::Token),
            expected,
            "{case}"
        );
    }
}
