//! A volume of this process, exported to it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use extol::Ext4;
use extol_nfs::{Config, Export, Server, Squash, Stopper};

use crate::{BenchError, Result};

/// An export; it ends when dropped.
#[derive(Debug)]
pub(crate) struct Serving {
    pub address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub fn start(fs: Arc<Ext4>) -> Result<Self> {
        let fail = |error: std::io::Error| BenchError(format!("NFS server: {error}"));
        let config = Config { squash: Squash::None, ..Config::default() };
        let export = Export::new(fs, config).map_err(|error| BenchError(error.to_string()))?;
        let listener = TcpListener::bind("127.0.0.1:0").map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        let server = Server::new(export, listener, Arc::new(|_: &str| ())).map_err(fail)?;
        let stopper = server.stopper();
        let run = move || drop(server.run());
        let thread = std::thread::Builder::new().name("nfs".into()).spawn(run).map_err(fail)?;
        Ok(Self { address, stopper, thread: Some(thread) })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stopper.stop();
        self.thread.take().map(JoinHandle::join);
    }
}
