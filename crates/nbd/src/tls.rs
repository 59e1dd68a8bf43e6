//! TLS 1.3 by rustls. The files have the names that libnbd and QEMU use.

use std::io::{IoSlice, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_proc::Shown as _;
use extol_sync::Mutex;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::{Error, Place, Result, Uri};

/// Where certificates are that no address names.
const SYSTEM_DIR: &str = "/etc/pki/libnbd";
/// The certificates that a system trusts.
const SYSTEM_BUNDLES: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// What TLS begins with: read once, before anything is confined.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

fn unusable(path: &Path, why: impl std::fmt::Display) -> Error {
    Error::NoExport(format!("the certificates in {} cannot be used: {why}", path.shown()))
}

impl Setup {
    /// Reads the certificates that an address names.
    pub fn read(uri: &Uri) -> Result<Self> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| Error::NoExport(error.to_string()))?;
        let dir = uri.certificates.clone().or_else(|| {
            let dir = PathBuf::from(SYSTEM_DIR);
            dir.is_dir().then_some(dir)
        });
        let builder = if uri.verifies {
            let roots = Arc::new(roots(dir.as_deref())?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider)
                .build()
                .map_err(|error| Error::NoExport(error.to_string()))?;
            builder.with_webpki_verifier(verifier)
        } else {
            let any = Arc::new(AnyServer(provider));
            builder.dangerous().with_custom_certificate_verifier(any)
        };
        let config = match dir.as_deref().map(own).transpose()?.flatten() {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let dir = dir.unwrap_or_default();
                builder.with_client_auth_cert(chain, key).map_err(|why| unusable(&dir, why))?
            }
        };
        let host = match (&uri.hostname, &uri.place) {
            (Some(name), _) => name.clone(),
            (None, Place::Tcp(host, _)) => host.clone(),
            (None, Place::Unix(_)) => "localhost".into(),
        };
        let name = ServerName::try_from(host).map_err(|_| {
            Error::NoExport("the host is no name for TLS: say tls-hostname=".into())
        })?;
        Ok(Self { config: Arc::new(config), name })
    }

    /// Exchanges what comes before the first byte of data.
    pub fn handshake(
        &self,
        receive: &mut dyn FnMut(&mut [u8]) -> Result<usize>,
        send: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Session> {
        let mut tls = ClientConnection::new(self.config.clone(), self.name.clone())
            .map_err(|error| failed(&error))?;
        let mut raw = Raw::default();
        while tls.is_handshaking() || tls.wants_write() {
            let out = records(&mut tls)?;
            if !out.is_empty() {
                send(&out)?;
                continue;
            }
            if let Err(error) = raw.fill(receive).and_then(|()| raw.feed(&mut tls)) {
                // (The server is told why.)
                let _ = records(&mut tls).and_then(|out| send(&out));
                return Err(error);
            }
        }
        Ok(Session { state: Mutex::new(tls), sending: Mutex::new(()), raw: Mutex::new(raw) })
    }
}

/// The authorities that are trusted: those of the directory, else those of the system.
fn roots(dir: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let own = dir.map(|dir| dir.join("ca-cert.pem"));
    let paths: Vec<PathBuf> = match own {
        Some(path) => vec![path],
        None => SYSTEM_BUNDLES.iter().map(PathBuf::from).filter(|path| path.exists()).collect(),
    };
    for path in paths.iter().take(1) {
        for certificate in certificates(path)? {
            // (Bundles of systems have old ones that nothing can read any more.)
            let added = roots.add(certificate);
            if dir.is_some() {
                added.map_err(|why| unusable(path, why))?;
            }
        }
    }
    if roots.is_empty() {
        let why = "no certificate of an authority is found: say tls-certificates=DIR";
        return Err(Error::NoExport(why.into()));
    }
    Ok(roots)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|why| unusable(path, why))
}

type Own = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// The certificate and the key of this client, if the directory has them.
fn own(dir: &Path) -> Result<Option<Own>> {
    let (chain, key) = (dir.join("client-cert.pem"), dir.join("client-key.pem"));
    if !chain.exists() && !key.exists() {
        return Ok(None);
    }
    let chain = certificates(&chain)?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|why| unusable(&key, why))?;
    Ok(Some((chain, key)))
}

/// Accepts whatever certificate a server has; that it has its key is checked all the same.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not used".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The state of TLS on a connection.
#[derive(Debug)]
pub(crate) struct Session {
    state: Mutex<ClientConnection>,
    /// Records go out in the order in which they were made.
    sending: Mutex<()>,
    /// What was received and is not taken in yet.
    raw: Mutex<Raw>,
}

/// Received bytes. Of these only so many are taken in at a time as make the contents of a few
/// records, which are read before more are.
#[derive(Debug, Default)]
struct Raw {
    bytes: Vec<u8>,
    start: usize,
}

impl Raw {
    /// Receives something if nothing is left.
    fn fill(&mut self, receive: &mut dyn FnMut(&mut [u8]) -> Result<usize>) -> Result<()> {
        if self.start == self.bytes.len() {
            self.start = 0;
            self.bytes.resize(RAW, 0);
            let got = receive(&mut self.bytes);
            self.bytes.truncate(*got.as_ref().unwrap_or(&0));
            got?;
        }
        Ok(())
    }

    fn feed(&mut self, tls: &mut ClientConnection) -> Result<()> {
        self.start += feed(tls, self.bytes.get(self.start..).unwrap_or_default())?;
        Ok(())
    }
}

/// Bytes that are received at a time: a record and its head.
const RAW: usize = 17 << 10;
/// Bytes that are enciphered at a time.
const AT_A_TIME: usize = 256 << 10;

fn failed(error: &rustls::Error) -> Error {
    use rustls::{AlertDescription, Error as E};
    let advice = match error {
        E::InvalidCertificate(_) => {
            " (tls-certificates=DIR names the authority, tls-hostname= the \
                                     name in the certificate)"
        }
        E::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::HandshakeFailure,
        ) => " (the server may want a certificate: tls-certificates=DIR)",
        _ => "",
    };
    Error::NoExport(format!("TLS: {error}{advice}"))
}

/// What is to be sent.
fn records(tls: &mut ClientConnection) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut out).map_err(|error| Error::broken("TLS", &error))?;
    }
    Ok(out)
}

/// Takes in a part of what was received: how much.
fn feed(tls: &mut ClientConnection, mut raw: &[u8]) -> Result<usize> {
    let taken = tls.read_tls(&mut raw).map_err(|error| Error::broken("TLS", &error))?;
    tls.process_new_packets().map_err(|error| failed(&error))?;
    match taken {
        0 => Err(Error::protocol("more comes than TLS takes")),
        taken => Ok(taken),
    }
}

impl Session {
    pub fn send(
        &self,
        bufs: &[IoSlice<'_>],
        send: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let _order = self.sending.lock();
        for buf in bufs {
            for part in buf.chunks(AT_A_TIME) {
                let mut rest = part;
                while !rest.is_empty() {
                    let out = {
                        let mut tls = self.state.lock();
                        let len = tls
                            .writer()
                            .write(rest)
                            .map_err(|error| Error::broken("TLS", &error))?;
                        rest = &rest[len..];
                        records(&mut tls)?
                    };
                    send(&out)?;
                }
            }
        }
        Ok(())
    }

    /// Fills a part of `buf`, at least a byte.
    pub fn receive(
        &self,
        buf: &mut [u8],
        receive: &mut dyn FnMut(&mut [u8]) -> Result<usize>,
    ) -> Result<usize> {
        let mut raw = self.raw.lock();
        loop {
            match self.state.lock().reader().read(buf) {
                Ok(0) => {
                    let kind = std::io::ErrorKind::UnexpectedEof;
                    let why = "the server has closed the connection".into();
                    return Err(Error::Broken { kind, why });
                }
                Ok(len) => return Ok(len),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Error::broken("the connection broke", &error)),
            }
            raw.fill(receive)?;
            raw.feed(&mut self.state.lock())?;
        }
    }
}
