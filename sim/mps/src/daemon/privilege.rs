//! Who may do what, by the peer's credentials (facts/mps.md 1.2).

use mpshare_sim_state::wire::Peer;

/// Whether the peer is of a user namespace that maps to nobody here: the kernel gives no uid then,
/// and the real daemon turns front-ends away and lets clients wait for ever (facts/mps.md 1.2, 3).
pub(super) fn is_unmapped(peer: Peer) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{}/uid_map", peer.pid));
    maps.is_ok_and(|maps| maps.trim().is_empty())
}

/// The daemon's own user.
pub(super) fn owner() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Root and the user that started the daemon may change it.
pub(super) fn may_control(peer: Peer) -> bool {
    peer.uid == 0 || peer.uid == owner()
}

/// Root may act for everybody, others for themselves.
pub(super) fn may_act_for(peer: Peer, uid: u32) -> bool {
    peer.uid == 0 || peer.uid == uid
}

/// The refusal of a change of settings (sic).
pub(super) fn no_control(peer: Peer) -> String {
    format!(
        "Insufficient privileges for UID {}. Control deamon settings can only be modified by the \
         user started it or by the root user.\n",
        peer.uid
    )
}

/// The refusal of an act on somebody else's server.
pub(super) fn not_theirs(peer: Peer, act: &str) -> String {
    format!("Insufficient privileges for UID {}. Only the root user may {act}.\n", peer.uid)
}
