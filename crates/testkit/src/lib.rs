//! Real things for tests: a control plane, nodes made of network namespaces, processes that never outlive the
//! test, a proxy that injects faults between operator and API server, and waits that say which condition was
//! missed.
//!
//! Nothing here imitates Kubernetes. A fake API server shares its author's assumptions; the bugs an operator
//! meets are in the difference.

pub mod assets;
pub mod bed;
pub mod builders;
mod certs;
pub mod chaos;
pub mod cluster;
pub mod control_plane;
mod error;
mod http_call;
pub mod install;
mod kubeconfig;
pub mod operator;
mod ports;
pub mod process;
pub mod proxy;
pub mod random;
pub mod recording;
mod scratch;
pub mod tools;
pub mod wait;
mod worker;

pub use assets::{Assets, Program};
pub use bed::Bed;
pub use control_plane::{Builder, ControlPlane, shared};
pub use error::{Error, Result};
pub use operator::Operator;
pub use process::Process;
pub use proxy::Proxy;
pub use recording::Recording;
