//! What is to be done next about the certificates, from what there is and the time.
//!
//! A CA is replaced in three steps with a pause after each, so that at every moment every API server
//! trusts what every replica serves: the next CA is published beside the present one; it signs, and
//! the former stays published; the former goes. Each step is one write of the Secret, and what the
//! Secret holds says which step is next: a replica that ends in between, or another one, goes on.
//!
//! A certificate that isn't valid yet counts as one that is over: it was made under a clock that was
//! wrong by more than the backdating, and API servers refuse it.

/// When a certificate is valid, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) not_before: u64,
    pub(crate) not_after: u64,
}

impl Span {
    pub(crate) const fn holds(self, now: u64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// When two thirds of it are over: from then on it is replaced.
    pub(crate) const fn due(self) -> u64 {
        self.not_after.saturating_sub(self.not_after.saturating_sub(self.not_before) / 3)
    }
}

/// What the Secret holds. What is damaged counts as absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Found {
    /// The CA that signs.
    pub(crate) present: Option<Span>,
    /// The CA that will.
    pub(crate) next: Option<Span>,
    /// Other CAs that are published.
    pub(crate) formers: usize,
    /// The serving certificate.
    pub(crate) serving: Option<Leaf>,
}

/// A serving certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) span: Span,
    pub(crate) issuer: Issuer,
    pub(crate) name: Name,
}

/// Who signed a serving certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Issuer {
    /// The present CA.
    Present,
    /// Somebody else.
    Other,
}

/// Whether a certificate has the name by which API servers call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    /// It has.
    Right,
    /// It hasn't.
    Wrong,
}

/// Whether API servers know the bundle, and replicas the certificate, as they are in the Secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spread {
    /// They have had the time.
    Settled,
    /// Some may not.
    Settling,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing.
    Rest,
    /// A new CA and a serving certificate by it; nothing there is of use.
    MakeAll,
    /// A new serving certificate by the present CA.
    RenewServing,
    /// A new CA that is published beside the present one and signs nothing yet.
    IntroduceNext,
    /// The next CA becomes the present one and signs a serving certificate; the former stays
    /// published.
    SwitchToNext,
    /// Only the present CA stays published.
    DropFormers,
}

/// The next step.
pub(crate) fn next_step(found: &Found, spread: Spread, now: u64) -> Step {
    let is_good = |span: Option<Span>| span.filter(|span| span.holds(now));
    let next = is_good(found.next);
    let Some(present) = is_good(found.present) else {
        return if next.is_some() { Step::SwitchToNext } else { Step::MakeAll };
    };
    let Some(serving) = found.serving.filter(|leaf| leaf.is_usable(now)) else {
        return Step::RenewServing;
    };
    let is_settled = spread == Spread::Settled;
    if next.is_some() && is_settled {
        return Step::SwitchToNext;
    }
    // One that ends with its CA gains nothing from another by the same CA.
    if now >= serving.span.due() && serving.span.not_after < present.not_after {
        return Step::RenewServing;
    }
    if next.is_none() && now >= present.due() {
        return Step::IntroduceNext;
    }
    // One that is of no use any more would stay published otherwise.
    let is_left_over = found.formers > 0 || (found.next.is_some() && next.is_none());
    if is_left_over && is_settled {
        return Step::DropFormers;
    }
    Step::Rest
}

impl Leaf {
    fn is_usable(&self, now: u64) -> bool {
        self.span.holds(now) && self.issuer == Issuer::Present && self.name == Name::Right
    }
}

#[cfg(test)]
mod tests;
