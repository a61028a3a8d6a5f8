//! Runs the example and calls it with a gRPC client.

use std::process::Command;

use ratekeeper_testkit::process::Process;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[tokio::test]
async fn the_third_call_of_an_hour_is_denied_and_told_when_to_come_back() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-tonic"));
    command.env_clear().arg("127.0.0.1:0");
    let mut example = Process::spawn("example-tonic", command);
    let said = example.wait_for_output("listening on http://");
    let address = said.trim().rsplit(' ').next().expect("an address");
    let endpoint = Endpoint::from_shared(address.to_owned()).expect("an address");
    let mut client = HealthClient::new(endpoint.connect().await.expect("it listens"));
    let call = || {
        let mut call = Request::new(HealthCheckRequest::default());
        call.metadata_mut()
            .insert("x-api-key", "ada".parse().expect("ASCII"));
        call
    };
    for left in ["1", "0"] {
        let answer = client.check(call()).await.expect("it is let pass");
        let told = answer.metadata().get("x-ratelimit-remaining");
        assert_eq!(told.expect("it is told"), left);
    }
    let denied = client
        .check(call())
        .await
        .expect_err("it is over its limit");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(
        denied
            .message()
            .starts_with("Rate limit exceeded. Retry after "),
        "{denied}"
    );
    let details = String::from_utf8_lossy(denied.details()).into_owned();
    assert!(
        details.contains("type.googleapis.com/google.rpc.RetryInfo"),
        "{details}"
    );
}
