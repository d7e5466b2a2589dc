//! Certificates for servers and clients under test, made anew for each.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

/// Who signs them.
pub struct Authority {
    /// Its certificate, in PEM form.
    pub certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A signed certificate and its key, in PEM form.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// A new one.
    #[must_use]
    pub fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a server or a client of this name or address.
    #[must_use]
    pub fn sign(&self, name: &str) -> Certificate {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Certificate {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
        }
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}
