//! Pieces of CRD schema that a derive cannot say.
//!
//! Every string and list that a CEL rule looks at has a largest size: the API server multiplies them
//! into the cost of the rule and refuses the CRD without them.
//!
//! Objects that vip-allocator-operator accepted are accepted: they are applied again from repositories
//! and backups. So nothing is asked of the fields that it knew but their type, and an unreadable
//! one is told by the condition of the object.

use kube::core::{Message, Reason, Rule};

/// Longest `first-last`: two IPv6 addresses and a dash, with room for IPv4 written inside IPv6 and for
/// blanks around each.
const LONGEST_ENTRY: u32 = 96;

/// Schema of a list of addresses to give out, whose entries are addresses, CIDRs or ranges.
pub(crate) fn address_set(max_items: u32) -> schemars::Schema {
    let special = serde_json::json!({
        "rule": NO_SPECIAL_ADDRESS,
        "messageExpression": "'must hold no address that a Service cannot have (unspecified, \
                              loopback, multicast, broadcast), as \"' + self + '\" does'",
    });
    address_list(max_items, &[address_block(), special])
}

/// Schema of a list whose entries are any addresses, CIDRs or ranges.
pub(crate) fn address_blocks(max_items: u32) -> schemars::Schema {
    address_list(max_items, &[address_block()])
}

fn address_list(max_items: u32, rules: &[serde_json::Value]) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": max_items,
        "items": {
            "type": "string",
            "maxLength": LONGEST_ENTRY,
            "x-kubernetes-validations": rules,
        },
    })
}

/// The rule of one entry.
///
/// The order of a range's ends is not checked here: CEL cannot compare addresses, and the pool's
/// `Ready` condition says it. The two ends are written out because `all` over the parts of a split
/// costs more than the API server allows.
fn address_block() -> serde_json::Value {
    serde_json::json!({
        "rule": "isIP(self.trim()) || isCIDR(self.trim()) || (self.split('-').size() == 2 \
                 && isIP(self.split('-')[0].trim()) && isIP(self.split('-')[1].trim()) \
                 && ip(self.split('-')[0].trim()).family() == ip(self.split('-')[1].trim()).family())",
        "messageExpression": "'must be an address (10.0.0.5), a CIDR (10.0.0.0/28) or a \
                              range of one family (10.0.0.5-10.0.0.9), not \"' + self + '\"'",
    })
}

/// Looks at the ends of a range and at the whole of a CIDR. The inside of a range is
/// left to the reader, which never gives it. A text that is neither is refused by the other rule.
const NO_SPECIAL_ADDRESS: &str = "isCIDR(self.trim()) \
    ? !['0.0.0.0', '127.0.0.1', '224.0.0.1', '255.255.255.255', '::', '::1', 'ff02::1'] \
        .exists(special, cidr(self.trim()).containsIP(special)) \
      && (cidr(self.trim()).masked().ip().isGlobalUnicast() \
        || cidr(self.trim()).masked().ip().isLinkLocalUnicast()) \
    : (!isIP(self.split('-')[0].trim()) \
        || ip(self.split('-')[0].trim()).isGlobalUnicast() \
        || ip(self.split('-')[0].trim()).isLinkLocalUnicast()) \
      && (self.split('-').size() != 2 || !isIP(self.split('-')[1].trim()) \
        || ip(self.split('-')[1].trim()).isGlobalUnicast() \
        || ip(self.split('-')[1].trim()).isLinkLocalUnicast())";

/// Canonical object names: IPv4 is left to `isIP`, which knows no leading zeros either.
const NAME_IS_AN_ADDRESS: &str = "isIP(self.metadata.name) \
    || self.metadata.name.matches('^(0|[1-9a-f][0-9a-f]{0,3})(-(0|[1-9a-f][0-9a-f]{0,3})){7}$')";

/// The fields of an `IP`, all of them ours: those of the original have an empty spec.
pub(crate) const IP_FIELDS: [&str; 5] = ["address", "use", "pool", "holders", "reservedFor"];

/// The fields of an `IPGroup` that only make sense with addresses.
pub(crate) const POOL_RULES: [&str; 12] = [
    "excludedIPs",
    "ranges",
    "priority",
    "autoAssign",
    "namespaceSelector",
    "serviceSelector",
    "loadBalancerClass",
    "avoidEnds",
    "drain",
    "quota",
    "retainFor",
    "announce",
];

/// The CEL expression that says that none of these fields of `self.spec` is set.
fn none_is_set(fields: &[&str]) -> String {
    let set: Vec<_> = fields.iter().map(|field| format!("has(self.spec.{field})")).collect();
    format!("!({})", set.join(" || "))
}

/// A new `IP` that says anything must be named by an address; one without a word takes none.
pub(crate) fn new_ip_is_named_by_an_address() -> Rule {
    let says_nothing = none_is_set(&IP_FIELDS);
    Rule::new(format!("oldSelf.hasValue() || {NAME_IS_AN_ADDRESS} || {says_nothing}"))
        .message(Message::Expression(
            "'the name of an IP must be its address, such as 10.0.0.5 or 2001-db8-0-0-0-0-0-10, not \"' \
             + self.metadata.name + '\"'"
                .into(),
        ))
        .optional_old_self(true)
}

/// Two names for one address would let it be taken twice.
pub(crate) fn address_is_the_name() -> Rule {
    Rule::new(
        "!has(self.spec.address) || !isIP(self.spec.address) \
         || self.metadata.name == self.spec.address \
         || (isIP(self.metadata.name.replace('-', ':')) \
         && ip(self.metadata.name.replace('-', ':')) == ip(self.spec.address))",
    )
    .message("the address must be the one that the object's name says")
    .reason(Reason::FieldValueInvalid)
    .field_path(".spec.address")
}

/// A pool with rules and without addresses can never serve. One without either is as good as the
/// original's without a spec, and one that was stored earlier stays editable.
///
/// The rule is at the root and not at the spec, whose default `{}` would break it there. At the
/// root nothing is ratcheted for us, as any edit changes the root: hence the look at `oldSelf`.
pub(crate) fn pool_has_addresses() -> Rule {
    let says_nothing = none_is_set(&POOL_RULES);
    Rule::new(format!(
        "has(self.spec.segment) || (has(self.spec.ranges) && size(self.spec.ranges) > 0) \
         || {says_nothing} || oldSelf.optMap(old, !has(old.spec.segment) \
         && (!has(old.spec.ranges) || size(old.spec.ranges) == 0)).orValue(false)"
    ))
    .message("a pool needs addresses: set segment (for example 10.0.0.0/24) or ranges")
    .field_path(".spec")
    .reason(Reason::FieldValueRequired)
    .optional_old_self(true)
}
