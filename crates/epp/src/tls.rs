//! Certificates of the ext-proc port: made at start, or read from files and read again when they change.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use lmetric_api::Tls;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, ring},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How often certificate files are compared with what is in use. Volumes of Kubernetes replace them through
/// symbolic links, so contents are compared, not times.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// Names in a self-signed certificate; proxies do not verify it.
const SELF_SIGNED_NAMES: [&str; 2] = ["lmetric-epp", "localhost"];

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {source}; mount the secret there or correct tls.{field}", path.display())]
    Read {
        /// Field of the configuration.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file holds no PEM of the right kind.
    #[error("{}: {problem}; tls.{field} must name a PEM file with {expected}", path.display())]
    Pem {
        /// Field of the configuration.
        field: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
        /// What must be in it.
        expected: &'static str,
    },
    /// Certificate and key do not belong together, or are of an unknown kind.
    #[error("{} and {}: {source}; tls.certFile and tls.keyFile must belong together", cert.display(), key.display())]
    Pair {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// Why.
        source: rustls::Error,
    },
    /// No certificate could be made.
    #[error("no self-signed certificate could be made: {0}")]
    SelfSigned(#[from] rcgen::Error),
    /// The TLS library refuses the setting.
    #[error("tls cannot be set up: {0}")]
    Setup(#[from] rustls::Error),
}

/// The server's side of TLS. Clones share the certificate.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<ServerConfig>,
    current: Arc<Current>,
    files: Option<Files>,
}

#[derive(Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

/// The bytes of both files.
#[derive(PartialEq, Eq)]
struct Contents {
    cert: Vec<u8>,
    key: Vec<u8>,
}

/// The certificate in use.
#[derive(Debug)]
struct Current(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Current {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl ServerTls {
    /// Reads or makes the certificate; `None` where TLS is off. Binds nothing.
    pub fn new(setting: &Tls) -> Result<Option<Self>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let (key, files) = match setting {
            Tls::Off => return Ok(None),
            Tls::SelfSigned => (self_signed(&provider)?, None),
            Tls::Files { cert_file, key_file } => {
                let files = Files {
                    cert: cert_file.clone(),
                    key: key_file.clone(),
                };
                (files.parse(&files.read()?, &provider)?, Some(files))
            }
        };
        let current = Arc::new(Current(ArcSwap::from_pointee(key)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(current.clone());
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Some(Self {
            config: Arc::new(config),
            current,
            files,
        }))
    }

    /// For new connections.
    pub fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.config.clone())
    }

    /// Reads the files again whenever they change, until `token` is cancelled. A bad pair keeps the last good one
    /// and says so once. Returns at cancellation only.
    pub async fn watch(self, token: CancellationToken) {
        let Some(files) = self.files.clone() else {
            return token.cancelled().await;
        };
        let provider = ring::default_provider();
        let mut known = files.read().ok();
        loop {
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(CHECK_EVERY) => {}
            }
            let (Ok(contents) | Err(contents)) = self.reload(&files, known, &provider);
            known = contents;
        }
    }

    /// `Ok` when nothing had to be done or the new pair is in use; the contents to compare with next time either way.
    fn reload(
        &self,
        files: &Files,
        known: Option<Contents>,
        provider: &CryptoProvider,
    ) -> Result<Option<Contents>, Option<Contents>> {
        // between two symbolic links a file may be missing for a moment
        let Ok(contents) = files.read() else {
            return Ok(known);
        };
        if known.as_ref() == Some(&contents) {
            return Ok(known);
        }
        match files.parse(&contents, provider) {
            Ok(key) => {
                self.current.0.store(Arc::new(key));
                info!(file = %files.cert.display(), "certificate read again");
                Ok(Some(contents))
            }
            Err(error) => {
                warn!(%error, "new certificate not usable, keeping the last one");
                Err(Some(contents))
            }
        }
    }
}

impl Files {
    fn read(&self) -> Result<Contents, TlsError> {
        let read = |field, path: &PathBuf| {
            std::fs::read(path).map_err(|source| TlsError::Read {
                field,
                path: path.clone(),
                source,
            })
        };
        Ok(Contents {
            cert: read("certFile", &self.cert)?,
            key: read("keyFile", &self.key)?,
        })
    }

    fn parse(&self, contents: &Contents, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let pem = |field, path: &PathBuf, problem, expected| TlsError::Pem {
            field,
            path: path.clone(),
            problem,
            expected,
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&contents.cert)
            .collect::<Result<_, _>>()
            .map_err(|error| pem("certFile", &self.cert, error.to_string(), "certificates"))?;
        if chain.is_empty() {
            let problem = "it holds no certificate".to_owned();
            return Err(pem("certFile", &self.cert, problem, "certificates"));
        }
        let key = PrivateKeyDer::from_pem_slice(&contents.key)
            .map_err(|error| pem("keyFile", &self.key, error.to_string(), "a private key"))?;
        CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Pair {
            cert: self.cert.clone(),
            key: self.key.clone(),
            source,
        })
    }
}

fn self_signed(provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let names = SELF_SIGNED_NAMES.map(str::to_owned).to_vec();
    let made = rcgen::generate_simple_self_signed(names)?;
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let chain = vec![made.cert.der().clone()];
    Ok(CertifiedKey::from_der(
        chain,
        PrivateKeyDer::Pkcs8(key),
        provider,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_pair(dir: &std::path::Path) -> Tls {
        let made = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
        let (cert_file, key_file) = (dir.join("tls.crt"), dir.join("tls.key"));
        std::fs::write(&cert_file, made.cert.pem()).unwrap();
        std::fs::write(&key_file, made.signing_key.serialize_pem()).unwrap();
        Tls::Files { cert_file, key_file }
    }

    #[test]
    fn off_needs_no_certificate() {
        assert!(ServerTls::new(&Tls::Off).unwrap().is_none());
        assert!(ServerTls::new(&Tls::SelfSigned).unwrap().is_some());
    }

    #[test]
    fn a_missing_file_is_named_with_its_field() {
        let tls = Tls::Files {
            cert_file: "/nowhere/tls.crt".into(),
            key_file: "/nowhere/tls.key".into(),
        };
        let error = ServerTls::new(&tls).err().unwrap().to_string();
        assert!(
            error.contains("/nowhere/tls.crt") && error.contains("tls.certFile"),
            "{error}"
        );
    }

    #[test]
    fn a_key_of_another_certificate_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tls = write_pair(dir.path());
        let other = rcgen::generate_simple_self_signed(vec!["b".to_owned()]).unwrap();
        std::fs::write(dir.path().join("tls.key"), other.signing_key.serialize_pem()).unwrap();
        let error = ServerTls::new(&tls).err().unwrap().to_string();
        assert!(error.contains("must belong together"), "{error}");
    }

    #[test]
    fn a_file_without_a_certificate_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let tls = write_pair(dir.path());
        std::fs::write(dir.path().join("tls.crt"), "hello").unwrap();
        let error = ServerTls::new(&tls).err().unwrap().to_string();
        assert!(error.contains("holds no certificate"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn changed_files_are_read_again_and_a_bad_pair_keeps_the_last() {
        let dir = tempfile::tempdir().unwrap();
        let tls = ServerTls::new(&write_pair(dir.path())).unwrap().unwrap();
        let in_use = || tls.current.0.load().cert[0].clone();
        let token = CancellationToken::new();
        let watching = tokio::spawn(tls.clone().watch(token.clone()));
        tokio::task::yield_now().await;
        let first = in_use();
        write_pair(dir.path());
        tokio::time::sleep(2 * CHECK_EVERY).await;
        let second = in_use();
        assert_ne!(first, second);
        std::fs::write(dir.path().join("tls.key"), "broken").unwrap();
        tokio::time::sleep(2 * CHECK_EVERY).await;
        assert_eq!(in_use(), second);
        write_pair(dir.path());
        tokio::time::sleep(2 * CHECK_EVERY).await;
        assert_ne!(in_use(), second);
        token.cancel();
        watching.await.unwrap();
    }
}
