//! The fake MPS server, which the control daemon starts.
fn main() -> std::process::ExitCode {
    mpshare_sim_mps::server::run()
}
