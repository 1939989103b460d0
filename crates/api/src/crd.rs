//! The CRDs as they are installed.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::{GroupSegmentMapping, IP, IPGroup, KeepalivedGroup, VirtualIP};

/// Every CRD, ready to apply, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let pools = [IPGroup::crd(), IP::crd()].map(|crd| (crd, json!({})));
    let groups = (KeepalivedGroup::crd(), json!({"interface": ""}));
    let with_spec = |(crd, spec): (_, Value)| {
        with_root(finish(crd), |root| spec_may_be_left_out(root, spec.clone()))
    };
    pools.into_iter().chain([groups]).map(with_spec).collect()
}

/// The kinds of earlier releases of vip-allocator-operator, for clusters that still have objects of
/// them. Other clusters do not need them.
pub fn legacy_crds() -> Vec<CustomResourceDefinition> {
    [GroupSegmentMapping::crd(), VirtualIP::crd()].map(finish).into()
}

/// What the derive cannot say.
fn finish(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    with_root(crd, |root| {
        every_schema(root, &mut absent_is_the_only_nothing);
        every_schema(root, &mut unwrap_lines);
    })
}

/// Changes the schema of each version.
fn with_root(
    mut crd: CustomResourceDefinition,
    change: impl Fn(&mut JSONSchemaProps),
) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        if let Some(root) = version.schema.as_mut().and_then(|s| s.open_api_v3_schema.as_mut()) {
            change(root);
        }
    }
    crd
}

/// The originals accept objects without a spec; with the default, readers always find one.
fn spec_may_be_left_out(root: &mut JSONSchemaProps, default: Value) {
    if let Some(required) = &mut root.required {
        required.retain(|field| field != "spec");
    }
    root.required.take_if(|required| required.is_empty());
    if let Some(spec) = root.properties.as_mut().and_then(|fields| fields.get_mut("spec")) {
        spec.default = Some(JSON(default));
    }
}

/// Takes `nullable` off: the API server then drops an explicit null before validation, and a CEL
/// rule need not tell null from absent.
fn absent_is_the_only_nothing(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
}

/// Doc comments are wrapped for us; a reader's terminal wraps for the reader.
fn unwrap_lines(schema: &mut JSONSchemaProps) {
    if let Some(text) = &mut schema.description {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    }
}

/// Calls `visit` on this schema and all below it.
fn every_schema(schema: &mut JSONSchemaProps, visit: &mut impl FnMut(&mut JSONSchemaProps)) {
    visit(schema);
    for field in schema.properties.iter_mut().flat_map(|fields| fields.values_mut()) {
        every_schema(field, visit);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => every_schema(items, visit),
        Some(JSONSchemaPropsOrArray::Schemas(items)) => {
            for items in items {
                every_schema(items, visit);
            }
        }
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &mut schema.additional_properties {
        every_schema(values, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every schema of every CRD, the root first.
    fn schemas() -> Vec<JSONSchemaProps> {
        let mut all = Vec::new();
        for crd in crds().into_iter().chain(legacy_crds()) {
            for mut version in crd.spec.versions {
                let root = version.schema.as_mut().unwrap().open_api_v3_schema.as_mut().unwrap();
                every_schema(root, &mut |schema| all.push(schema.clone()));
            }
        }
        all
    }

    #[test]
    fn the_originals_identity_is_kept() {
        let crds = crds();
        let expected = [
            ("ipgroups.paas.org", "Cluster", "v1", json!({}), &["ipg"][..], None),
            ("ips.paas.org", "Cluster", "v1", json!({}), &[], None),
            (
                "keepalivedgroups.redhatcop.redhat.io",
                "Namespaced",
                "v1alpha1",
                json!({"interface": ""}),
                &[],
                Some(&["interface"][..]),
            ),
        ];
        assert_eq!(crds.len(), expected.len());
        for (crd, (name, scope, version_name, default, short, required)) in
            crds.iter().zip(expected)
        {
            assert_eq!(crd.metadata.name.as_deref(), Some(name));
            assert_eq!(crd.spec.scope, scope);
            assert_eq!(crd.spec.names.categories.as_deref(), Some(&["landfall".to_owned()][..]));
            assert_eq!(crd.spec.names.short_names.clone().unwrap_or_default(), short, "{name}");
            let [version] = &crd.spec.versions[..] else { panic!("one version") };
            assert_eq!(
                (version.name.as_str(), version.served, version.storage),
                (version_name, true, true)
            );
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            let root = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
            assert_eq!(
                root.required, None,
                "an object without a spec is as good as the originals'"
            );
            let spec = &root.properties.as_ref().unwrap()["spec"];
            assert_eq!(spec.default, Some(JSON(default)));
            let required = required.map(|fields| fields.iter().map(ToString::to_string).collect());
            assert_eq!(spec.required, required, "{name}");
        }
    }

    #[test]
    fn the_old_kinds_keep_their_identity() {
        let expected = [
            (
                "groupsegmentmappings.paas.org",
                "Cluster",
                "gsm",
                &["Keepalived Group", "Segment", "AGE"][..],
            ),
            ("virtualips.paas.org", "Namespaced", "vip", &["Service", "IP", "State", "AGE"]),
        ];
        for (crd, (name, scope, short, columns)) in legacy_crds().iter().zip(expected) {
            assert_eq!(crd.metadata.name.as_deref(), Some(name));
            assert_eq!(crd.spec.scope, scope);
            assert_eq!(crd.spec.names.short_names.as_deref(), Some(&[short.to_owned()][..]));
            let [version] = &crd.spec.versions[..] else { panic!("one version") };
            assert!(version.subresources.as_ref().unwrap().status.is_some());
            let shown = version.additional_printer_columns.iter().flatten();
            assert_eq!(shown.map(|column| column.name.as_str()).collect::<Vec<_>>(), columns);
            let root = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap();
            assert_eq!(root.required.as_deref(), Some(&["spec".to_owned()][..]), "{name}");
        }
    }

    #[test]
    fn nothing_is_nullable_and_no_number_is_unsigned() {
        for schema in schemas() {
            assert_eq!(schema.nullable, None, "{schema:?}");
            let format = schema.format.as_deref().unwrap_or_default();
            assert!(!format.starts_with("uint"), "{schema:?}");
        }
    }

    #[test]
    fn every_field_of_ours_is_explained() {
        for schema in schemas() {
            for (field, schema) in schema.properties.unwrap_or_default() {
                assert!(
                    schema.description.is_some() || field == "metadata" || field == "status",
                    "{field} has no description"
                );
            }
        }
    }
}
