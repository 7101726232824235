//! What the control program does and says (facts/mps.md 1.1, 1.2, 1.3, 6).

use super::Check;

pub(super) fn checks() -> Vec<Check> {
    Vec::new()
}
