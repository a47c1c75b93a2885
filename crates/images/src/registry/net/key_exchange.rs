//! Key exchange over the groups that Go's clients offer (`crypto/tls`, `defaultCurvePreferences`), if the crypto
//! library has them: those of rustls, and P-521. Over TLS 1.2 a server with a key on P-521 needs a client that offers
//! that curve, whatever group is used.

use aws_lc_rs::agreement::{self, ECDH_P521, EphemeralPrivateKey, PublicKey, UnparsedPublicKey};
use aws_lc_rs::rand::SystemRandom;
use rustls::crypto::aws_lc_rs::{default_provider, kx_group};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SharedSecret, SupportedKxGroup,
};
use rustls::ffdhe_groups::FfdheGroup;
use rustls::{Error, NamedGroup, PeerMisbehaved};

/// First byte of an uncompressed point, the only form that TLS 1.3 allows (RFC 8446 section 4.2.8.2).
const UNCOMPRESSED: u8 = 4;

/// Returns the crypto provider with all groups. Those that rustls does not offer by default come last. So a server with
/// another common group does not choose them, and no key for them is made before a server requests it.
pub(crate) fn provider() -> CryptoProvider {
    let mut provider = default_provider();
    provider.kx_groups.push(kx_group::SECP256R1MLKEM768);
    provider.kx_groups.push(&Secp521r1);
    provider
}

/// Makes this provider the process's default, for TLS that chooses none itself: that of the Kubernetes API client. Has
/// no effect if a default is already installed.
pub fn install_key_exchange() {
    let _ = provider().install_default();
}

/// Ephemeral Diffie-Hellman over P-521 by AWS-LC.
#[derive(Debug)]
struct Secp521r1;

struct Exchange {
    private: EphemeralPrivateKey,
    public: PublicKey,
}

impl SupportedKxGroup for Secp521r1 {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let private = EphemeralPrivateKey::generate(&ECDH_P521, &SystemRandom::new())
            .map_err(|_| GetRandomFailed)?;
        let public = private.compute_public_key().map_err(|_| GetRandomFailed)?;
        Ok(Box::new(Exchange { private, public }))
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }
}

impl ActiveKeyExchange for Exchange {
    /// Computes the secret. AWS-LC refuses a point that is not on the curve.
    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, Error> {
        if peer.first() != Some(&UNCOMPRESSED) {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        let peer = UnparsedPublicKey::new(&ECDH_P521, peer);
        let invalid = Error::from(PeerMisbehaved::InvalidKeyShare);
        agreement::agree_ephemeral(self.private, peer, invalid, |secret| {
            Ok(SharedSecret::from(secret))
        })
    }

    fn ffdhe_group(&self) -> Option<FfdheGroup<'static>> {
        None
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::secp521r1
    }

    fn pub_key(&self) -> &[u8] {
        self.public.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_compute_the_same_secret() {
        let [one, other] = [(); 2].map(|()| Secp521r1.start().unwrap());
        let [for_one, for_other] = [other.pub_key().to_vec(), one.pub_key().to_vec()];
        let secrets = [
            one.complete(&for_one).unwrap(),
            other.complete(&for_other).unwrap(),
        ];
        assert_eq!(secrets[0].secret_bytes(), secrets[1].secret_bytes());
        assert_eq!(
            secrets[0].secret_bytes().len(),
            66,
            "with its leading zeros (RFC 8446 section 7.4.2)"
        );
    }

    #[test]
    fn points_off_the_curve_are_refused() {
        let valid = Secp521r1.start().unwrap().pub_key().to_vec();
        let mut other = valid.clone();
        other[100] ^= 1;
        let mut compressed = valid[..67].to_vec();
        compressed[0] = 2;
        for point in [
            &[][..],
            &[UNCOMPRESSED],
            &valid[..132],
            &other,
            &compressed,
            &[0; 133],
        ] {
            let exchange = Secp521r1.start().unwrap();
            let refused = exchange.complete(point).err();
            assert_eq!(
                refused,
                Some(PeerMisbehaved::InvalidKeyShare.into()),
                "{point:?}"
            );
        }
        assert!(Secp521r1.start().unwrap().complete(&valid).is_ok());
    }

    /// The client sends a key share of the first group with every greeting.
    #[test]
    fn default_groups_come_first() {
        let groups = provider().kx_groups;
        let usual = default_provider().kx_groups;
        let names = |groups: &[&dyn SupportedKxGroup]| -> Vec<NamedGroup> {
            groups.iter().map(|group| group.name()).collect()
        };
        assert!(names(&groups).starts_with(&names(&usual)));
        assert_eq!(names(&groups).last(), Some(&NamedGroup::secp521r1));
    }
}
