//! What must hold before anything is created in a cluster that others use.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, Client, ResourceExt};
use landfall_api::{IP, IPGroup, VirtualIP, convert, crds, name};
use landfall_ipam::{AddrSet, PoolName};
use landfall_testkit::cluster::{external, in_status, key};

use super::journal::Journal;
use super::{Error, if_there, lease};
use crate::output::Output;

/// The oldest Kubernetes that Landfall serves.
const OLDEST: (u32, u32) = (1, 33);
/// The version of our kinds that the demo writes.
const VERSION: &str = "v1";
/// Enough to see what is in the way.
const MOST_NAMED: usize = 5;

/// What the demo has to bring.
pub(super) struct Found {
    pub missing_kinds: Vec<CustomResourceDefinition>,
    /// The operator that leads in the cluster already, in words.
    pub leader: Option<String>,
}

/// Looks whether the demo would meet anything of others if it created these pools and other objects.
pub(super) async fn look(
    client: &Client,
    others: &[DynamicObject],
    pools: &[DynamicObject],
    output: &Output,
) -> Result<Found, Error> {
    // What is in a namespace of the demo is met there only if the namespace is.
    let to_create = others.iter().chain(pools);
    let found =
        Journal::found(client, to_create.filter(|object| object.namespace().is_none())).await?;
    if !found.is_empty() {
        return Err(Error::NamesTaken { found, pools: super::names(pools) });
    }
    let missing_kinds = missing_kinds(client).await?;
    let leader = lease::leader(client, output).await?;
    let theirs = Others::read(client).await?;
    if leader.is_none()
        && let Some(first) = theirs.first()
    {
        return Err(Error::NoLeader(first));
    }
    let addresses = addresses(pools);
    let by = theirs.clashes(&addresses);
    if by.is_empty() {
        return Ok(Found { missing_kinds, leader });
    }
    let addresses: Vec<_> = addresses.ranges().map(|range| range.to_string()).collect();
    Err(Error::Clash { addresses: addresses.join(", "), by })
}

/// Refuses a Kubernetes that is too old for the operator.
pub(super) fn version(info: &Info) -> Result<(), Error> {
    let number = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..digits].parse::<u32>().ok()
    };
    // A version that cannot be read is given the benefit of the doubt.
    let found = number(&info.major).zip(number(&info.minor));
    match found {
        Some(found) if found < OLDEST => Err(Error::TooOld(info.git_version.clone())),
        _ => Ok(()),
    }
}

async fn missing_kinds(client: &Client) -> Result<Vec<CustomResourceDefinition>, Error> {
    let installed: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing = Vec::new();
    for crd in crds() {
        let name = crd.name_any();
        let found = installed
            .get_opt(&name)
            .await
            .map_err(Error::call(format!("reading CustomResourceDefinition {name}")))?;
        match found {
            None => missing.push(crd),
            Some(found) => {
                let mut fields = lacking(&crd, &found);
                if !fields.is_empty() {
                    fields.truncate(MOST_NAMED);
                    return Err(Error::OtherKind { name, fields: fields.join(", ") });
                }
            }
        }
    }
    Ok(missing)
}

/// Fields of our kind that the installed one would drop without a word.
fn lacking(ours: &CustomResourceDefinition, theirs: &CustomResourceDefinition) -> Vec<String> {
    let schema = |crd: &CustomResourceDefinition| {
        let version = crd.spec.versions.iter().find(|version| version.name == VERSION)?;
        version.schema.clone()?.open_api_v3_schema
    };
    let mut fields = Vec::new();
    let theirs = schema(theirs).unwrap_or_default();
    compare(&schema(ours).unwrap_or_default(), &theirs, "", &mut fields);
    fields
}

fn compare(
    ours: &JSONSchemaProps,
    theirs: &JSONSchemaProps,
    path: &str,
    lacking: &mut Vec<String>,
) {
    if theirs.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (field, ours) in ours.properties.iter().flatten() {
        let path = format!("{path}.{field}");
        match theirs.properties.as_ref().and_then(|fields| fields.get(field)) {
            Some(theirs) => compare(ours, theirs, &path, lacking),
            None => lacking.push(path),
        }
    }
    if let (
        Some(JSONSchemaPropsOrArray::Schema(ours)),
        Some(JSONSchemaPropsOrArray::Schema(theirs)),
    ) = (&ours.items, &theirs.items)
    {
        compare(ours, theirs, &format!("{path}[]"), lacking);
    }
}

/// All addresses of these pools.
fn addresses(pools: &[DynamicObject]) -> AddrSet {
    let pools = pools.iter().filter_map(|object| object.clone().try_parse::<IPGroup>().ok());
    pools.fold(AddrSet::new(), |all, pool| all.union(&ranges(&pool)))
}

/// What a pool contains; nothing if it cannot be read.
fn ranges(pool: &IPGroup) -> AddrSet {
    let read = convert::pool(PoolName::new(&pool.name_any()), &pool.spec);
    read.map_or_else(|_| AddrSet::new(), |read| read.pool.ranges().clone())
}

/// What others have in the cluster that an operator would act on.
#[derive(Default)]
struct Others {
    pools: Vec<IPGroup>,
    claims: Vec<String>,
    virtual_ips: Vec<String>,
    services: Vec<Service>,
}

impl Others {
    async fn read(client: &Client) -> Result<Self, Error> {
        let all = ListParams::default();
        let pools = Api::<IPGroup>::all(client.clone()).list(&all).await;
        let claims = Api::<IP>::all(client.clone()).list_metadata(&all).await;
        let virtual_ips = Api::<VirtualIP>::all(client.clone()).list_metadata(&all).await;
        let services = Api::<Service>::all(client.clone()).list(&all).await;
        let claims = if_there(claims).map_err(Error::call("listing all IPs"))?;
        let claims = claims.iter().flatten().map(ResourceExt::name_any);
        let virtual_ips = if_there(virtual_ips).map_err(Error::call("listing all VirtualIPs"))?;
        let virtual_ips = virtual_ips.iter().flatten().map(ResourceExt::name_any);
        let pools = if_there(pools).map_err(Error::call("listing all IPGroups"))?;
        Ok(Self {
            pools: pools.into_iter().flatten().collect(),
            claims: claims.collect(),
            virtual_ips: virtual_ips.collect(),
            services: services.map_err(Error::call("listing all Services"))?.items,
        })
    }

    /// One of those that a second operator would serve.
    fn first(&self) -> Option<String> {
        let pool = self.pools.first().map(|pool| format!("IPGroup {}", pool.name_any()));
        let claim = self.claims.first().map(|claim| format!("IP {claim}"));
        let virtual_ip = self.virtual_ips.first().map(|one| format!("VirtualIP {one}"));
        pool.or(claim).or(virtual_ip)
    }

    /// The objects that have some of these addresses.
    fn clashes(&self, addresses: &AddrSet) -> Vec<String> {
        let ours = |addr: &IpAddr| addresses.contains(*addr);
        let pools = self.pools.iter().filter(|pool| {
            let common = ranges(pool).intersection(addresses);
            !common.is_empty()
        });
        let pools = pools.map(|pool| format!("IPGroup {}", pool.name_any()));
        let claims = self.claims.iter().filter(|claim| {
            let addr = name::parse(claim);
            addr.is_ok_and(|addr| ours(&addr))
        });
        let claims = claims.map(|claim| format!("IP {claim}"));
        let services = self
            .services
            .iter()
            .filter(|service| in_status(service).iter().chain(&external(service)).any(ours));
        let services = services.map(|service| format!("Service {}", key(service)));
        pools.chain(claims).chain(services).take(MOST_NAMED).collect()
    }
}

#[cfg(test)]
mod tests {
    use landfall_testkit::builders::load_balancer;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_old_kubernetes_is_refused() {
        for (major, minor, fine) in [
            ("1", "33", true),
            ("1", "36+", true),
            ("2", "0", true),
            ("1", "32", false),
            ("1", "9-gke.1", false),
            ("one", "2", true),
        ] {
            let info = Info { major: major.to_owned(), minor: minor.to_owned(), ..Info::default() };
            assert_eq!(version(&info).is_ok(), fine, "{major}.{minor}");
        }
    }

    fn field<'a>(schema: &'a mut JSONSchemaProps, name: &str) -> &'a mut JSONSchemaProps {
        schema.properties.as_mut().unwrap().get_mut(name).unwrap()
    }

    #[test]
    fn a_kind_that_would_drop_fields_of_the_samples_is_found() {
        let change = |name: &str, change: &dyn Fn(&mut JSONSchemaProps)| {
            let mut crd = crds().into_iter().find(|crd| crd.name_any() == name).unwrap();
            let schema = crd.spec.versions[0].schema.as_mut().unwrap();
            change(schema.open_api_v3_schema.as_mut().unwrap());
            let ours = crds().into_iter().find(|crd| crd.name_any() == name).unwrap();
            lacking(&ours, &crd)
        };
        let without = |schema: &mut JSONSchemaProps, name: &str| {
            schema.properties.as_mut().unwrap().remove(name).unwrap();
        };
        let none: [&str; 0] = [];
        assert_eq!(change("ipgroups.paas.org", &|_| {}), none);
        let older = change("ipgroups.paas.org", &|schema| {
            without(field(schema, "spec"), "loadBalancerClass");
        });
        assert_eq!(older, [".spec.loadBalancerClass"]);
        let in_a_list = change("ips.paas.org", &|schema| {
            let holders = field(field(schema, "spec"), "holders");
            let Some(JSONSchemaPropsOrArray::Schema(holder)) = &mut holders.items else { panic!() };
            without(holder, "uid");
        });
        assert_eq!(in_a_list, [".spec.holders[].uid"]);
        let newer = change("ipgroups.paas.org", &|schema| {
            let spec = field(schema, "spec").properties.as_mut().unwrap();
            spec.insert("later".to_owned(), JSONSchemaProps::default());
        });
        assert_eq!(newer, none);
        let keeps_all = change("ips.paas.org", &|schema| {
            *field(schema, "spec") = JSONSchemaProps {
                x_kubernetes_preserve_unknown_fields: Some(true),
                ..JSONSchemaProps::default()
            };
        });
        assert_eq!(keeps_all, none);

        let mut other = crds().remove(0);
        other.spec.versions[0].name = "v2".to_owned();
        assert!(!lacking(&crds()[0], &other).is_empty(), "no version of ours");
    }

    #[test]
    fn an_object_that_has_an_address_of_the_samples_is_named() {
        let pool = |name: &str, segment: &str| -> IPGroup {
            let object = json!({
                "apiVersion": "paas.org/v1", "kind": "IPGroup",
                "metadata": { "name": name }, "spec": { "segment": segment },
            });
            serde_json::from_value(object).unwrap()
        };
        let service = |name: &str, shows: &str, external: &[&str]| {
            let mut service = load_balancer(name);
            service.metadata.namespace = Some("shop".to_owned());
            let ingress = json!({ "loadBalancer": { "ingress": [{ "ip": shows }] } });
            service.status = Some(serde_json::from_value(ingress).unwrap());
            let listed = external.iter().map(|addr| (*addr).to_owned()).collect();
            service.spec.as_mut().unwrap().external_ips = Some(listed);
            service
        };
        let ours = ranges(&pool("ours", "192.0.2.0/24"));
        let apart = Others {
            pools: vec![pool("dmz", "10.0.0.0/8"), pool("broken", "here")],
            claims: vec!["10.0.0.1".to_owned(), "strange".to_owned()],
            virtual_ips: vec![],
            services: vec![service("web", "10.0.0.1", &["10.0.0.2"])],
        };
        assert!(apart.clashes(&ours).is_empty());
        let among = Others {
            pools: vec![pool("half", "192.0.2.128/25"), pool("all", "192.0.0.0/16")],
            claims: vec!["192.0.2.3".to_owned()],
            virtual_ips: vec![],
            services: vec![
                service("web", "192.0.2.4", &[]),
                service("old", "10.0.0.1", &["192.0.2.5"]),
            ],
        };
        let expected =
            ["IPGroup half", "IPGroup all", "IP 192.0.2.3", "Service shop/web", "Service shop/old"];
        assert_eq!(among.clashes(&ours), expected);
    }

    #[test]
    fn a_second_operator_would_serve_only_pools_claims_and_virtual_ips() {
        let named = || vec!["a".to_owned()];
        assert_eq!(Others::default().first(), None);
        let services = Others { services: vec![load_balancer("web")], ..Others::default() };
        assert_eq!(services.first(), None);
        let claims = Others { claims: named(), ..Others::default() };
        assert_eq!(claims.first().as_deref(), Some("IP a"));
        let old = Others { virtual_ips: named(), ..Others::default() };
        assert_eq!(old.first().as_deref(), Some("VirtualIP a"));
    }
}
