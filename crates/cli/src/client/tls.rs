//! Whom an https address is believed.

use std::{path::PathBuf, sync::Arc};

use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_pki_types::{
    CertificateDer,
    pem::{self, PemObject as _},
};
use thiserror::Error;

/// Certificate authorities that are trusted.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The system's (`SSL_CERT_FILE` and `SSL_CERT_DIR` are heeded).
    System,
    /// Those of a PEM file.
    File(PathBuf),
}

/// Certificates that cannot be used.
#[derive(Debug, Error)]
pub enum TlsError {
    /// The system has none.
    #[error("the system's certificate authorities cannot be read: {0}; install ca-certificates or give --ca")]
    System(#[source] std::io::Error),
    /// The file cannot be read or is no PEM.
    #[error("{path}: {source}; give a PEM file with --ca")]
    File {
        /// File.
        path: PathBuf,
        /// What is wrong.
        source: pem::Error,
    },
    /// A certificate in it is not one.
    #[error("{path}: {source}; give a PEM file of certificates with --ca")]
    Certificate {
        /// File.
        path: PathBuf,
        /// What is wrong.
        source: rustls::Error,
    },
    /// No certificate in it.
    #[error("{path}: no certificate in it; give a PEM file with --ca")]
    Empty {
        /// File.
        path: PathBuf,
    },
    /// The TLS library refuses its own defaults.
    #[error("TLS cannot be set up: {0}; use an http address")]
    Setup(#[source] rustls::Error),
}

/// Speaks TLS over `plain` where the address asks for it.
pub(super) fn wrap(
    plain: HttpConnector,
    https: bool,
    trust: &Trust,
) -> Result<HttpsConnector<HttpConnector>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?;
    let config = match trust {
        Trust::File(path) if https => config.with_root_certificates(read(path)?),
        Trust::System if https => config.with_native_roots().map_err(TlsError::System)?,
        _ => config.with_root_certificates(RootCertStore::empty()),
    };
    Ok(HttpsConnectorBuilder::new()
        .with_tls_config(config.with_no_client_auth())
        .https_or_http()
        .enable_http1()
        .wrap_connector(plain))
}

fn read(path: &PathBuf) -> Result<RootCertStore, TlsError> {
    let failed = |source| TlsError::File {
        path: path.clone(),
        source,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(failed)? {
        roots
            .add(certificate.map_err(failed)?)
            .map_err(|source| TlsError::Certificate {
                path: path.clone(),
                source,
            })?;
    }
    if roots.is_empty() {
        Err(TlsError::Empty { path: path.clone() })
    } else {
        Ok(roots)
    }
}
