//! What the Services of `examples/demo` should come to.

use landfall_ipam::Reason;

/// A Service and what it should have.
#[derive(Debug)]
pub(super) struct Sample {
    /// `namespace/name`.
    pub service: &'static str,
    pub expected: Expected,
}

#[derive(Debug)]
pub(super) enum Expected {
    /// An address from each of these pools.
    From(&'static [&'static str]),
    /// Exactly this address.
    Address(&'static str),
    /// None, for this reason.
    Refused(Reason),
}

/// One row per Service in `examples/demo`.
pub(super) const EXPECTED: &[Sample] = &[
    Sample { service: "shop/web", expected: Expected::From(&["IPGroup/public"]) },
    Sample { service: "shop/mail", expected: Expected::Address("192.0.2.25") },
    Sample { service: "shop/web-v6", expected: Expected::From(&["IPGroup/public-v6"]) },
    Sample {
        service: "shop/api",
        expected: Expected::From(&["IPGroup/public", "IPGroup/public-v6"]),
    },
    Sample { service: "bank/ledger", expected: Expected::From(&["IPGroup/payments"]) },
    Sample { service: "shop/mail-copy", expected: Expected::Refused(Reason::TakenBy) },
    Sample { service: "shop/typo", expected: Expected::Refused(Reason::Unparseable) },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use k8s_openapi::api::core::v1::Service;

    use super::*;

    #[test]
    fn every_service_of_the_demo_has_an_expectation() {
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(crate::cargo::repository().join("examples/demo")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            for document in text.split("\n---\n").filter(|text| text.contains("kind: Service\n")) {
                let service: Service = serde_saphyr::from_str(document).unwrap();
                let (namespace, name) = (service.metadata.namespace, service.metadata.name);
                found.insert(format!("{}/{}", namespace.unwrap(), name.unwrap()));
            }
        }
        let expected = EXPECTED.iter().map(|sample| sample.service.to_owned()).collect();
        assert_eq!(found, expected);
    }
}
