//! What holds for every text of a user, as functions that panic where it does not.
//!
//! Random tests and the targets in `fuzz/` call the same ones.
#![expect(clippy::missing_panics_doc, reason = "to panic is what they are for")]

use alloc::{format, string::ToString};

use crate::{AddrBlock, AddrRange, Party, clash};

/// A text is read as what prints the same, or refused by its own words.
pub fn block(text: &str) {
    match text.parse::<AddrBlock>() {
        Ok(block) => {
            let range = block.range();
            assert!(range.contains(range.first()) && range.contains(range.last()));
            assert_eq!(AddrRange::new(range.first(), range.last()), Some(range));
            let again = format!("{range}").parse::<AddrBlock>().map(AddrBlock::range);
            assert_eq!(again, Ok(range));
        }
        Err(error) => {
            let quoted = format!("{text:?}");
            assert!(error.to_string().contains(&quoted), "{error}");
        }
    }
}

/// Two agree to share, or neither does, whichever comes second.
pub fn consent(one: Party<'_>, other: Party<'_>) {
    let (there, back) = (clash(one, other), clash(other, one));
    assert_eq!(there.is_none(), back.is_none(), "{there:?} and {back:?}");
}
