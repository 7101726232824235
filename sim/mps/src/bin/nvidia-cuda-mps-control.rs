//! The fake control daemon and its front-end.
fn main() -> std::process::ExitCode {
    mpshare_sim_mps::control::run()
}
