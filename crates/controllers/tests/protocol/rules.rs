//! The rules of the protocol, each of which can be weakened to see what it is good for.

/// A rule, or half of one, that an operator does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakened {
    /// Rule 1: "already exists" is no obstacle, the claim is written over.
    TakeOverwrites,
    /// Rule 2: a claim that another operator wrote is published on without a touch.
    ResumeUntouched,
    /// Rule 2: a touch is not guarded by the claim's version.
    TouchUnguarded,
    /// Rule 2: a touch may record an older version of the holder than the claim has already.
    TouchBackwards,
    /// Rule 3: a publication is guarded by the holder's uid alone.
    PublishUnguarded,
    /// Rule 3: the guard is a version observed after the operator's own create or touch.
    GuardObservedLate,
    /// Rule 4: a new address is preferred to one that a claim keeps.
    NewAddressFirst,
    /// Rule 5: the holder is looked up in the cache.
    ReleaseFromCache,
    /// Rule 5: the deletion is guarded by nothing.
    ReleaseUnguarded,
    /// Rule 5: the deletion is guarded by the claim's uid alone.
    ReleaseGuardedByUid,
    /// Rule 5: the claim's version is learnt after the holder was read.
    ReadBeforeKnowing,
    /// Rule 5: any Service with the name of the holder counts as the holder when releasing.
    ReleaseByName,
    /// Rules 2 and 3: any Service with the name of the holder counts as the holder when publishing.
    PublishByName,
    /// Rule 6: an address that must leave its holder is released while it is shown.
    ReleaseBeforeWithdraw,
    /// Rule 6: whether a Service may still share what it shows is judged by the cache.
    WithdrawFromCache,
    /// Rule 7: claims beside the one whose address is shown are kept.
    KeepExtraClaims,
    /// Rule 8: a Service that shows an address of another is given a new one.
    AdoptionMoves,
    /// Rule 8: an address that a claim keeps comes before a shown one that is not the Service's own.
    KeptBeforeShown,
    /// Own writes are known only when the watch shows them.
    OverlayForgotten,
    /// A start lists holders first and claims after them.
    HoldersListedFirst,
}

/// All rules but at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules(pub(crate) Option<Weakened>);

impl Rules {
    pub(crate) const ALL: Self = Self(None);

    pub(crate) fn lack(self, rule: Weakened) -> bool {
        self.0 == Some(rule)
    }

    /// Whether operators need to know which claims they wrote themselves. The protocol does not: the
    /// version in the claim tells all there is to know.
    pub(crate) fn tell_own_claims(self) -> bool {
        self.lack(Weakened::ResumeUntouched) || self.lack(Weakened::GuardObservedLate)
    }

    pub(crate) fn lists_holders_first(self) -> bool {
        self.lack(Weakened::HoldersListedFirst)
    }
}
