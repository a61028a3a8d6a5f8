//! A node that stood still for longer than a deadline, while the server answered.

use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::RedisConfig;
use ratekeeper_testkit::redis::{Client, Server};
use tokio::task::yield_now;

use crate::support::{LASTING, decide, limit, patient, step, store};

/// Long enough for a slow machine to connect, and to answer while the node stands still.
const DEADLINE: Duration = Duration::from_millis(500);

#[tokio::test]
async fn an_answer_that_is_there_is_taken_however_late_it_is_read() {
    let server = Server::start();
    let mut config: RedisConfig = patient();
    config.deadline = DEADLINE;
    let store = Arc::new(store(&server, config));
    let limit = limit(Algorithm::FixedWindow, 10, LASTING);
    let mut client = server.client();
    // The connection is there, and so is the script.
    while decide(&*store, &[step(&limit, 1)]).await.is_err() {}
    for _ in 0..3 {
        let executed = executed(&mut client);
        let asking = Arc::clone(&store);
        let asked = tokio::spawn(async move { decide(&*asking, &[step(&limit, 2)]).await });
        // One turn at a time, so that nobody reads the answer before the pause.
        while (0..3).all(|_| self::executed(&mut client) == executed) {
            yield_now().await;
        }
        // Nothing of this runtime moves.
        std::thread::sleep(DEADLINE * 2);
        let verdicts = asked.await.expect("the task ends");
        assert!(verdicts.expect("the server has answered").allowed);
    }
}

/// The server's count of script calls.
fn executed(client: &mut Client) -> Option<String> {
    let info = client.ask(&["INFO", "commandstats"]).text();
    let mut lines = info.lines();
    let line = lines.find(|line| line.starts_with("cmdstat_evalsha:"))?;
    line.split(',').next().map(str::to_owned)
}
