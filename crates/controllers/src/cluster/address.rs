//! Reads the addresses of objects that are not ours to give.

use std::net::IpAddr;

use k8s_openapi::api::{discovery::v1::EndpointSlice, networking::v1::ServiceCIDR};
use landfall_ipam::{AddrBlock, AddrSet};

/// The ranges from which the API server gives `ClusterIPs`.
pub(super) fn service_ranges(object: &ServiceCIDR) -> AddrSet {
    let listed = object.spec.as_ref().and_then(|spec| spec.cidrs.as_deref());
    let blocks = listed.unwrap_or_default().iter().filter_map(|text| text.parse().ok());
    blocks.map(AddrBlock::range).collect()
}

/// The addresses in a slice of endpoints.
pub(super) fn endpoint_addresses(object: &EndpointSlice) -> Vec<IpAddr> {
    let listed = object.endpoints.iter().flat_map(|endpoint| &endpoint.addresses);
    listed.filter_map(|text| read(text)).collect()
}

/// Reads an address that something uses, whatever its spelling: kube-proxy and kubelet take `::ffff:192.0.2.1` for
/// `192.0.2.1`.
pub(super) fn read(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}
