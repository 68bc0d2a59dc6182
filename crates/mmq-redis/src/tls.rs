//! The certificates of a connection with TLS.

use std::fs;
use std::path::PathBuf;

use redis::{Client, ClientTlsConfig, ConnectionInfo, RedisResult, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};

/// Files (PEM), read at the beginning of each session.
#[derive(Clone, Default)]
pub(crate) struct TlsFiles {
    pub(crate) roots: Option<PathBuf>,
    /// Certificate and key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

impl TlsFiles {
    pub(crate) fn client(&self, info: &ConnectionInfo) -> RedisResult<Client> {
        if CryptoProvider::get_default().is_none() {
            // (Another thread may be quicker: then that one's counts.)
            let _ = ring::default_provider().install_default();
        }
        let root_cert = self.roots.as_ref().map(read).transpose()?;
        let client_tls = match &self.own {
            Some((certificate, key)) => {
                Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
            }
            None => None,
        };
        if root_cert.is_none() && client_tls.is_none() {
            return Client::open(info.clone());
        }
        Client::build_with_tls(info.clone(), TlsCertificates { client_tls, root_cert })
    }
}

/// A file's bytes, or an error that names it.
fn read(path: &PathBuf) -> RedisResult<Vec<u8>> {
    let named = |error: std::io::Error| {
        std::io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    Ok(fs::read(path).map_err(named)?)
}
