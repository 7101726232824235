//! The address for probes.

use axum::http::Request;
use kube::{Client, Config};
use mpshare_scheduler::{Listeners, Options};
use mpshare_testkit::fakekube::FakeKube;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

async fn answer(address: std::net::SocketAddr, method: &str, path: &str) -> String {
    let mut config = Config::new(format!("http://{address}").parse().unwrap());
    config.default_retry = false;
    let request = Request::builder().method(method).uri(path).body(b"{}".to_vec()).unwrap();
    match Client::try_from(config).unwrap().request_text(request).await {
        Ok(text) => text,
        Err(kube::Error::Api(status)) => status.code.to_string(),
        Err(other) => panic!("{path}: {other}"),
    }
}

#[tokio::test]
async fn who_reaches_the_address_for_probes_can_ask_and_not_bind() {
    let kube = FakeKube::start().await.unwrap();
    let calls = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let status = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (to_calls, to_status) = (calls.local_addr().unwrap(), status.local_addr().unwrap());
    let stop = CancellationToken::new();
    let listeners = Listeners { calls, status: Some(status) };
    let run =
        mpshare_scheduler::run(kube.client().unwrap(), listeners, Options::default(), stop.clone());
    let extender = tokio::spawn(run);
    for path in ["/healthz", "/version", "/metrics"] {
        assert_ne!(answer(to_status, "GET", path).await, "404", "{path}");
    }
    for (method, verb) in
        [("POST", "filter"), ("POST", "prioritize"), ("POST", "bind"), ("GET", "inspect")]
    {
        let path = format!("/gpushare-scheduler/{verb}");
        assert_eq!(answer(to_status, method, &path).await, "404", "{path}");
        assert_ne!(answer(to_calls, method, &path).await, "404", "{path}");
    }
    stop.cancel();
    extender.await.unwrap().unwrap();
}
