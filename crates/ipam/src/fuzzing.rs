//! Properties that hold for every text a user can write, as functions that panic when one is violated.
//!
//! The random tests and the targets in `fuzz/` call the same functions.
#![expect(clippy::missing_panics_doc, reason = "to panic is what they are for")]

use alloc::{format, string::ToString};

use crate::{AddrBlock, AddrRange, Party, clash};

/// A text is either read as a range that survives printing, or refused with an error that quotes it.
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

/// Either both holders agree to share or neither does, whichever of them comes second.
pub fn consent(one: Party<'_>, other: Party<'_>) {
    let (there, back) = (clash(one, other), clash(other, one));
    assert_eq!(there.is_none(), back.is_none(), "{there:?} and {back:?}");
}
