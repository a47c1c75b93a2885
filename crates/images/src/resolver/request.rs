//! Request to look up an image: who needs the image, and with which credentials.

use std::borrow::Cow;
use std::fmt::Write;

use crate::credentials::CredentialCandidate;
use tolerarch_core::image::ImageRef;
use tolerarch_support::concurrency::Tenant;
use tolerarch_text::escape::shortened;

/// Who needs the images that are looked up.
#[derive(Clone, Copy)]
pub struct Requester<'a> {
    /// Namespace of the Pod; lookups count towards its share. `None` for a command of the operator, or for the program
    /// itself.
    pub namespace: Option<&'a str>,
    /// UID of the Pod's review, for the log; `None` without a review.
    pub review: Option<&'a str>,
}

impl Requester<'_> {
    pub const OPERATOR: Self = Self {
        namespace: None,
        review: None,
    };

    fn tenant(&self) -> Tenant {
        match self.namespace {
            Some(namespace) => Tenant::of(namespace),
            None => Tenant::Operator,
        }
    }
}

/// Request for one image. It is made when a lookup begins or is joined: a Pod whose images are cached needs none.
pub(super) struct LookupRequest {
    pub(super) image: ImageRef,
    /// In the order in which to try them.
    pub(super) candidates: Cow<'static, [CredentialCandidate]>,
    pub(super) tenant: Tenant,
    /// UID of the Pod's review, shortened.
    pub(super) review: Option<Box<str>>,
}

/// Key by which a lookup is joined: by this tenant, or by any tenant if there is `None`.
pub(super) type FlightKey = (Option<Tenant>, Box<str>);

impl LookupRequest {
    pub(super) fn new(
        image: &ImageRef,
        candidates: Cow<'static, [CredentialCandidate]>,
        requester: Requester<'_>,
    ) -> Self {
        Self {
            image: image.clone(),
            candidates,
            tenant: requester.tenant(),
            review: requester.review.map(|uid| shortened(uid).into()),
        }
    }

    /// Returns the key by which the tenant's other Pods join the lookup.
    pub(super) fn key(&self) -> FlightKey {
        (Some(self.tenant.clone()), self.name())
    }

    /// Returns the key by which tenants share the query of the registry. A query that may run a program is not shared:
    /// the run waits for its tenant's share of the runs, and no other tenant should have to wait for it.
    pub(super) fn query_key(&self) -> FlightKey {
        let runs_program = self
            .candidates
            .iter()
            .any(|candidate| candidate.held_credential().is_none());
        let only_tenant = runs_program.then(|| self.tenant.clone());
        (only_tenant, self.name())
    }

    /// Returns the image and the candidates' IDs. No image contains a space, which separates the parts.
    fn name(&self) -> Box<str> {
        let mut name = self.image.to_string();
        for candidate in &*self.candidates {
            // Writing to a string does not fail.
            let _ = write!(name, " {:x}", candidate.id.0);
        }
        name.into()
    }
}
