use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};

/// How a [`KubeStore`](crate::KubeStore) works with the API server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Who writes, as `metadata.managedFields` shows it: at most 128 characters.
    pub field_manager: String,
    /// How long a call may take. A write that has had no answer by then is `OutcomeUnknown`.
    pub request_timeout: Duration,
    /// Largest object in bytes of JSON. etcd behind the API server takes 1.5 MiB, of which the
    /// server's own bookkeeping (`managedFields`) needs some.
    pub max_object_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            field_manager: "ipledger".to_owned(),
            request_timeout: Duration::from_secs(30),
            max_object_bytes: 1 << 20,
        }
    }
}

/// Which cluster is meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cluster {
    /// A kubeconfig file; `None` means `$KUBECONFIG`, `~/.kube/config`, or the service account of the
    /// pod, whichever there is first.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; `None` means its current one.
    pub context: Option<String>,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kubeconfig cannot be used.
    #[error("the kubeconfig{} cannot be used: {source}", shown(path.as_deref()))]
    Kubeconfig {
        /// The file, if one was named.
        path: Option<PathBuf>,
        /// Why not.
        source: Box<KubeconfigError>,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error(
        "no cluster is configured: set KUBECONFIG, name a kubeconfig, or run in a pod with a service account ({0})"
    )]
    NoCluster(Box<InferConfigError>),
    /// The client cannot be built, for example because a certificate cannot be read.
    #[error("the configuration of the cluster cannot be used: {0}")]
    Client(Box<kube::Error>),
}

fn shown(path: Option<&Path>) -> String {
    path.map_or_else(String::new, |p| format!(" {}", p.display()))
}

impl Cluster {
    /// Reads the configuration.
    ///
    /// # Errors
    /// `Kubeconfig` or `NoCluster`.
    pub async fn config(&self) -> Result<kube::Config, OpenError> {
        if *self == Cluster::default() {
            return kube::Config::infer()
                .await
                .map_err(|e| OpenError::NoCluster(Box::new(e)));
        }
        let options = KubeConfigOptions {
            context: self.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            None => kube::Config::from_kubeconfig(&options).await,
            Some(path) => match Kubeconfig::read_from(path) {
                Ok(file) => kube::Config::from_custom_kubeconfig(file, &options).await,
                Err(e) => Err(e),
            },
        };
        config.map_err(|e| OpenError::Kubeconfig {
            path: self.kubeconfig.clone(),
            source: Box::new(e),
        })
    }
}
