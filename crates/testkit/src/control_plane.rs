//! A real API server with its own etcd, certificates and data, for one test or for many.

mod etcd;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Request;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

use crate::assets::{self, Assets, Program};
use crate::certs::{self, Authority};
use crate::kubeconfig::{self, Identity};
use crate::process::Process;
use crate::scratch::Scratch;
use crate::{Error, Result, ports};
use etcd::Etcd;

/// Generous on purpose: it is not a measurement, and CI machines are slow when they are shared.
const START_DEADLINE: Duration = Duration::from_mins(2);
const STOP_DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any test or bench run, so that no test meets an expired token.
const TOKEN_SECONDS: i64 = 12 * 3600;
const PORT_ATTEMPTS: usize = 5;

/// Both families, so that dual-stack Services work as on a real cluster.
const SERVICE_RANGES: &str = "10.64.0.0/12,fd00:64::/108";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// Controllers that only matter with kubelets, volumes or clouds; each costs informers and time.
const CONTROLLERS: &str = "*,-certificatesigningrequest-approving-controller,\
    -certificatesigningrequest-cleaner-controller,-certificatesigningrequest-signing-controller,\
    -cloud-node-lifecycle-controller,-ephemeral-volume-controller,\
    -horizontal-pod-autoscaler-controller,-node-ipam-controller,-node-lifecycle-controller,\
    -node-route-controller,\
    -persistentvolume-attach-detach-controller,-persistentvolume-binder-controller,\
    -persistentvolume-expander-controller,-persistentvolume-protection-controller,\
    -persistentvolumeclaim-protection-controller,-resourceclaim-controller,-service-lb-controller";

/// The parts of a control plane, before it runs.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    controller_manager: bool,
    apiserver_args: Vec<String>,
}

impl Builder {
    /// Adds the controllers that give namespaces their default `ServiceAccount`, delete the dependents of a
    /// deleted owner, and empty deleted namespaces.
    pub fn with_controller_manager(mut self, yes: bool) -> Self {
        self.controller_manager = yes;
        self
    }

    /// Adds a flag to the API server's, such as `--feature-gates=…`.
    pub fn apiserver_arg(mut self, arg: impl Into<String>) -> Self {
        self.apiserver_args.push(arg.into());
        self
    }

    /// Starts everything and returns once the API server is ready.
    ///
    /// The error shows the end of the log of the process that failed.
    pub async fn start(self) -> Result<ControlPlane> {
        let mut needed = vec![Program::Etcd, Program::KubeApiserver, Program::Kubectl];
        if self.controller_manager {
            needed.push(Program::KubeControllerManager);
        }
        let assets =
            blocking(move || Assets::prepare(&needed, &assets::progress_on_stderr)).await?;
        let mut attempt = 1;
        loop {
            match ControlPlane::launch(&self, assets.clone()).await {
                Err(error) if error.is_port_conflict() && attempt < PORT_ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }
}

/// A running control plane; dropping it ends every process and removes every file.
///
/// It holds no connection and no runtime of its own, so that one value in a `static` serves tests
/// whose runtimes come and go.
#[derive(Debug)]
pub struct ControlPlane {
    // Processes first: fields drop in this order, and the directory must go last.
    controller_manager: Option<Process>,
    apiserver: Mutex<Option<Arc<Process>>>,
    etcd: Etcd,
    assets: Assets,
    extra_args: Vec<String>,
    admit_service_accounts: bool,
    port: u16,
    url: String,
    ca_pem: String,
    ca_der: Vec<u8>,
    admin_kubeconfig: PathBuf,
    dir: Scratch,
}

impl ControlPlane {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// etcd and API server, which is all that most tests need.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    async fn launch(builder: &Builder, assets: Assets) -> Result<Self> {
        let dir = Scratch::new("landfall-control-plane-")?;
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).map_err(Error::io(format!("writing {}", path.display())))?;
            Ok::<_, Error>(path)
        };
        let port = ports::free()?;
        let url = format!("https://127.0.0.1:{port}");

        let ca = Authority::new()?;
        let serving = ca.server(&[
            "127.0.0.1",
            "::1",
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ])?;
        let (token_key, token_public) = certs::service_account_keys()?;
        write("ca.crt", &ca.pem)?;
        write("apiserver.crt", &serving.cert)?;
        write("apiserver.key", &serving.key)?;
        write("service-account.key", &token_key)?;
        write("service-account.pub", &token_public)?;
        let admin = ca.client("landfall-admin", Some("system:masters"))?;
        let admin_kubeconfig = write(
            "admin.kubeconfig",
            &kubeconfig::render(&url, &ca.pem, &Identity::Certificate(&admin)),
        )?;
        let manager = ca.client("system:kube-controller-manager", None)?;
        write(
            "controller-manager.kubeconfig",
            &kubeconfig::render(&url, &ca.pem, &Identity::Certificate(&manager)),
        )?;

        let etcd = Etcd::start(&assets, dir.path()).await?;
        let mut plane = Self {
            controller_manager: None,
            apiserver: Mutex::new(None),
            etcd,
            assets,
            extra_args: builder.apiserver_args.clone(),
            admit_service_accounts: builder.controller_manager,
            port,
            url,
            ca_pem: ca.pem,
            ca_der: ca.der,
            admin_kubeconfig,
            dir,
        };
        plane.start_apiserver().await?;
        if builder.controller_manager {
            plane.controller_manager = Some(plane.start_controller_manager().await?);
        }
        Ok(plane)
    }

    /// The address of the API server, `https://127.0.0.1:…`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The CA certificate that signed the API server's.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    pub(crate) fn ca_der(&self) -> &[u8] {
        &self.ca_der
    }

    /// Where this control plane keeps certificates, kubeconfigs, data and logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A kubeconfig of a member of `system:masters`.
    pub fn admin_kubeconfig(&self) -> &Path {
        &self.admin_kubeconfig
    }

    /// The binaries it runs, for tests that start more of them.
    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    /// The process ids of everything that runs, for measuring memory.
    pub fn pids(&self) -> Vec<u32> {
        let apiserver = self.apiserver_slot().as_ref().map(|process| process.pid());
        let manager = self.controller_manager.as_ref().map(Process::pid);
        [Some(self.etcd.process().pid()), apiserver, manager].into_iter().flatten().collect()
    }

    /// A client that may do everything.
    pub async fn admin_client(&self) -> Result<Client> {
        client_from(&self.admin_kubeconfig).await
    }

    /// A kubeconfig with a real token of a `ServiceAccount`, which is created if it is missing.
    ///
    /// It has exactly the rights that RBAC gives it, so a test run with it proves the manifests.
    pub async fn service_account_kubeconfig(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        self.service_account_kubeconfig_via(namespace, name, &self.url).await
    }

    /// The same, but reaching the API server through `server_url`, such as a [`Proxy`]'s.
    ///
    /// [`Proxy`]: crate::proxy::Proxy
    pub async fn service_account_kubeconfig_via(
        &self,
        namespace: &str,
        name: &str,
        server_url: &str,
    ) -> Result<PathBuf> {
        let account = format!("{namespace}/{name}");
        let client = self.admin_client().await?;
        self.ensure_namespace(namespace).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client, namespace);
        let wanted = ServiceAccount {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            ..ServiceAccount::default()
        };
        create_unless_there(&accounts, &wanted).await?;
        let request = TokenRequest {
            spec: TokenRequestSpec {
                audiences: vec![],
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::kube(format!("asking for a token of {account}")))?
            .status
            .ok_or(Error::NoToken { account })?
            .token;
        let text = kubeconfig::render(server_url, &self.ca_pem, &Identity::Token(&token));
        let mut file = tempfile::Builder::new()
            .prefix(&format!("{namespace}.{name}."))
            .suffix(".kubeconfig")
            .tempfile_in(self.dir())
            .map_err(Error::io("making a kubeconfig"))?;
        file.write_all(text.as_bytes()).map_err(Error::io("writing a kubeconfig"))?;
        let (_, path) =
            file.keep().map_err(|error| error.error).map_err(Error::io("keeping a kubeconfig"))?;
        Ok(path)
    }

    /// Creates a namespace unless it exists.
    pub async fn ensure_namespace(&self, name: &str) -> Result<()> {
        let wanted = Namespace {
            metadata: ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        create_unless_there(&Api::all(self.admin_client().await?), &wanted).await
    }

    /// Server-side applies any number of YAML documents as the admin.
    pub async fn apply_yaml(&self, yaml: &str) -> Result<String> {
        self.kubectl_with_input(&["apply", "--server-side", "--force-conflicts", "-f", "-"], yaml)
            .await
    }

    /// Applies a file, or all files of a folder, of `CustomResourceDefinitions` and waits until the API
    /// server serves them, because it refuses the first write of a new kind before that.
    pub async fn install_crds(&self, path: &Path) -> Result<()> {
        let path = path.to_string_lossy();
        self.kubectl(&["apply", "--server-side", "-f", &path]).await?;
        self.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", "-f", &path])
            .await?;
        Ok(())
    }

    /// Runs `kubectl` as the admin and returns its output; its failure is an error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.kubectl_with_input(args, "").await
    }

    async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        let mut command = Command::new(self.assets.path(Program::Kubectl));
        command
            .arg("--kubeconfig")
            .arg(&self.admin_kubeconfig)
            // The default cache goes by address, and other clusters use the same addresses again.
            .arg("--cache-dir")
            .arg(self.dir().join("kubectl-cache"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (args, input) = (args.join(" "), input.to_owned());
        blocking(move || {
            let mut child = command.spawn().map_err(Error::io("starting kubectl"))?;
            if let Some(mut stdin) = child.stdin.take() {
                // kubectl may refuse before it has read everything; its own message is the better one.
                drop(stdin.write_all(input.as_bytes()));
            }
            let output = child.wait_with_output().map_err(Error::io("waiting for kubectl"))?;
            if output.status.success() {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            } else {
                let stderr = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
                Err(Error::Kubectl { args, stderr })
            }
        })
        .await
    }

    /// Kills the API server, as a crash would; etcd keeps the data.
    pub fn kill_apiserver(&self) -> Result<()> {
        // Taken out first so that the lock is free while the process dies.
        let process = self.apiserver_slot().take();
        process.map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Starts the API server again on the same port and data.
    pub async fn start_apiserver(&self) -> Result<()> {
        let process = Process::spawn(&self.apiserver_command(), &self.dir().join("apiserver.log"))?;
        let client = self.admin_client().await?;
        process
            .ready("the API server's /readyz", START_DEADLINE, async || {
                let request = Request::get("/readyz").body(vec![]).map_err(|e| e.to_string())?;
                client.request_text(request).await.map_err(|error| error.to_string())?;
                // The API server is ready before the namespace exists in which half of all tests work.
                let namespaces: Api<Namespace> = Api::all(client.clone());
                namespaces.get("default").await.map_err(|error| error.to_string())
            })
            .await?;
        *self.apiserver_slot() = Some(Arc::new(process));
        Ok(())
    }

    /// Ends the API server gracefully and starts it again on the same port and data.
    pub async fn restart_apiserver(&self) -> Result<()> {
        let process = self.apiserver_slot().take();
        if let Some(process) = process {
            process.terminate(STOP_DEADLINE).await?;
        }
        self.start_apiserver().await
    }

    /// Suspends etcd, as a disk that hangs does; the API server waits for it.
    pub fn pause_etcd(&self) -> Result<()> {
        self.etcd.process().suspend()
    }

    /// Lets a suspended etcd go on.
    pub fn resume_etcd(&self) -> Result<()> {
        self.etcd.process().resume()
    }

    /// Saves everything that is stored at this moment, for [`ControlPlane::restore_etcd`].
    pub fn save_etcd(&self) -> Result<()> {
        self.etcd.save()
    }

    /// Restores what [`ControlPlane::save_etcd`] saved, as an administrator does with a snapshot: API server
    /// and etcd end, and start again with older data and lower versions.
    pub async fn restore_etcd(&self) -> Result<()> {
        self.kill_apiserver()?;
        self.etcd.restore().await?;
        self.start_apiserver().await
    }

    /// Compacts etcd up to the revision that is returned. The API server still has older revisions in its own
    /// cache until it restarts.
    pub async fn compact_etcd(&self) -> Result<u64> {
        self.etcd.compact().await
    }

    /// The end of the API server's log, for the message of a failing test.
    pub fn apiserver_log_tail(&self, lines: usize) -> String {
        crate::process::tail(&self.dir().join("apiserver.log"), lines).unwrap_or_default()
    }

    fn apiserver_slot(&self) -> MutexGuard<'_, Option<Arc<Process>>> {
        self.apiserver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apiserver_command(&self) -> Command {
        let file = |name: &str| self.dir().join(name).display().to_string();
        let mut command = Command::new(self.assets.path(Program::KubeApiserver));
        command.args([
            "--authorization-mode=RBAC".into(),
            "--bind-address=127.0.0.1".into(),
            // Nothing in these clusters reaches the API server by its Service, and finding an
            // address to advertise fails on machines without a default route.
            "--advertise-address=127.0.0.1".into(),
            "--endpoint-reconciler-type=none".into(),
            format!("--secure-port={}", self.port),
            format!("--etcd-servers={}", self.etcd.url()),
            format!("--service-cluster-ip-range={SERVICE_RANGES}"),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--service-account-issuer={ISSUER}"),
            format!("--service-account-key-file={}", file("service-account.pub")),
            format!("--service-account-signing-key-file={}", file("service-account.key")),
            "--allow-privileged=true".into(),
            "--profiling=false".into(),
        ]);
        if !self.admit_service_accounts {
            // Without the controller that creates them, this plug-in would refuse every Pod for lack of its
            // namespace's default ServiceAccount.
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        command.args(&self.extra_args);
        command
    }

    async fn start_controller_manager(&self) -> Result<Process> {
        let file = |name: &str| self.dir().join(name).display().to_string();
        let mut command = Command::new(self.assets.path(Program::KubeControllerManager));
        command.args([
            format!("--kubeconfig={}", file("controller-manager.kubeconfig")),
            format!("--controllers={CONTROLLERS}"),
            format!("--service-account-private-key-file={}", file("service-account.key")),
            format!("--root-ca-file={}", file("ca.crt")),
            "--use-service-account-credentials=true".into(),
            "--leader-elect=false".into(),
            "--secure-port=0".into(),
            "--profiling=false".into(),
        ]);
        let process = Process::spawn(&command, &self.dir().join("controller-manager.log"))?;
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin_client().await?, "default");
        process
            .ready("the default ServiceAccount", START_DEADLINE, async || {
                accounts.get("default").await.map_err(|error| error.to_string())
            })
            .await?;
        Ok(process)
    }
}

/// One control plane for all tests of this process, started by the first test that needs it.
///
/// Tests share it, so each works in namespaces of its own and none restarts the API server. It
/// ends with the process.
pub async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: tokio::sync::OnceCell<ControlPlane> = tokio::sync::OnceCell::const_new();
    SHARED.get_or_try_init(ControlPlane::start).await
}

/// A client for the cluster that a kubeconfig names.
pub async fn client_from(kubeconfig: &Path) -> Result<Client> {
    install_crypto();
    let unreadable =
        |source| Error::Kubeconfig { path: kubeconfig.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(kubeconfig).map_err(unreadable)?;
    let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .map_err(unreadable)?;
    // Tests stop API servers; fifteen silent retries would only hide that.
    config.default_retry = false;
    Client::try_from(config).map_err(Error::kube("making a client"))
}

pub(crate) fn install_crypto() {
    // An error means that it was done before, which is fine.
    drop(rustls::crypto::ring::default_provider().install_default());
}

async fn create_unless_there<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: k8s_openapi::serde::Serialize + k8s_openapi::serde::de::DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => {
            let name = object.meta().name.as_deref().unwrap_or_default();
            Err(Error::kube(format!("creating {} {name}", K::kind(&())))(error))
        }
    }
}

/// Runs a blocking function on another thread: a test's only thread may have a proxy to serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Io {
        what: "running a blocking call".into(),
        source: error.into(),
    })?
}
