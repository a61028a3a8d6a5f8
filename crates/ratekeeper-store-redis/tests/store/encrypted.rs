//! An encrypted cluster and an encrypted primary with its sentinels, for users with no more rights than necessary.

use std::path::Path;

use ratekeeper_core::Algorithm;
use ratekeeper_store_redis::script::slot;
use ratekeeper_store_redis::{Endpoint, RedisStore};
use ratekeeper_testkit::certificates::{Authority, Identity, Validity, put};
use ratekeeper_testkit::process::eventually;
use ratekeeper_testkit::redis::{Client, Cluster, PRIMARY, Sentinels, Server, hosts};
use ratekeeper_tls::TlsFiles;

use crate::cluster::step_of;
use crate::leases::{leased, until_leased};
use crate::support::{LASTING, decide, home, limit, patient, step};

/// A certificate for the address that all servers share, and the authority that signed it.
fn files() -> tempfile::TempDir {
    let (authority, folder) = (Authority::new(), tempfile::tempdir());
    let folder = folder.expect("a folder can be made");
    let ours = authority.issue("127.0.0.1", Validity::Valid);
    ours.write(folder.path());
    put(&folder.path().join("ca.pem"), &authority.pem());
    folder
}

fn node(url: &str, files: &Path) -> RedisStore {
    let files = TlsFiles {
        authorities: Some(files.join("ca.pem")),
        identity: None,
    };
    let endpoint = Endpoint::parse(url).expect("a good URL");
    let endpoint = endpoint.with_tls(files).expect("it is encrypted");
    RedisStore::new(endpoint, patient(), home())
}

fn set_user(client: &mut Client, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let made = client.ask(&words);
    assert!(!made.is_error(), "{made:?}");
}

/// The command that `store` prints, which may first report that it found no server to ask.
fn grant_for(store: &RedisStore) -> String {
    let mut grant = None;
    eventually("it says what lacks", || {
        let why = store.server_status().error.unwrap_or_default();
        grant = why.split_once("grant it: ").map(|(_, it)| it.to_owned());
        grant.is_some()
    });
    grant.expect("it was said")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_asked_encrypted_by_a_user_with_the_printed_grant() {
    let files = files();
    let mut cluster = Cluster::encrypted(2, files.path());
    let ports: Vec<u16> = cluster.servers().iter().map(Server::tls_port).collect();
    // Each node is found, and encrypted, by the settings for the first.
    let url = format!("rediss+cluster://app:pw@{}/", hosts(&ports[..1]));
    let everyone = |command: &str| (0..2).for_each(|it| set_user(&mut cluster.client(it), command));
    everyone("ACL SETUSER app on >pw ~rk:* +@all -asking");
    let store = node(&url, files.path());
    let grant = grant_for(&store);
    everyone("ACL SETUSER app reset on >pw");
    everyone(&grant);

    let store = node(&url, files.path());
    eventually("both nodes are known", || {
        store.shards().len() == 2 && store.hash_key().is_some()
    });
    let shards = store.shards();
    let mut names: Vec<_> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    names.sort();
    let mut encrypted: Vec<_> = ports
        .iter()
        .map(|port| format!("127.0.0.1:{port}"))
        .collect();
    encrypted.sort();
    assert_eq!(names, encrypted);
    let limit = limit(Algorithm::FixedWindow, 3, LASTING);
    let both = [step_of(&limit, 1, 0), step_of(&limit, 1, 2)];
    for allowed in [true, true, true, false] {
        let verdicts = decide(&store, &both).await.expect("they answer");
        assert_eq!(verdicts.allowed, allowed);
    }
    // Its slot is migrating, and the new counters are on the other node.
    let new = step_of(&limit, 2, 0);
    cluster.begin_moving(slot(new.key.subject), 0, 1);
    let verdicts = decide(&store, &[new]).await.expect("the other answers");
    assert!(verdicts.allowed);
    let shards = store.shards();
    assert!(shards.iter().map(|it| it.redirects).sum::<u64>() > 0);
    eventually("nothing is in the way", || store.faults().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_is_found_encrypted_by_users_of_both() {
    let files = files();
    let watcher =
        "user watch on >word -@all +ping +sentinel|get-master-addr-by-name +sentinel|replicas";
    let mut set = Sentinels::encrypted(files.path(), &[watcher]);
    let ports = hosts(set.tls_ports());
    let url = format!(
        "rediss+sentinel://app:pw@{ports}/{PRIMARY}?sentinel_user=watch&sentinel_pass=word"
    );
    let primary = &set.servers()[0];
    let (mut client, encrypted) = (primary.client(), primary.tls_port());
    set_user(&mut client, "ACL SETUSER app on >pw ~rk:* +@all -zadd");
    let store = node(&url, files.path());
    let grant = grant_for(&store);
    set_user(&mut client, "ACL SETUSER app reset on >pw");
    set_user(&mut client, &grant);

    let store = node(&url, files.path());
    eventually("the primary is known", || store.hash_key().is_some());
    assert_eq!(*store.shards()[0].shard, format!("127.0.0.1:{encrypted}"));
    let limit = limit(Algorithm::FixedWindow, 2, LASTING);
    for allowed in [true, true, false] {
        let verdicts = decide(&store, &[step(&limit, 1)])
            .await
            .expect("it answers");
        assert_eq!(verdicts.allowed, allowed);
    }
    let ample = self::limit(Algorithm::FixedWindow, 1_000, LASTING);
    until_leased(&store, &leased(&step(&ample, 3))).await;
    eventually("nothing is in the way", || store.faults().is_empty());

    let wrong = url.replace("sentinel_pass=word", "sentinel_pass=other");
    let store = node(&wrong, files.path());
    eventually("the sentinels' refusal is told", || {
        let faults = store.faults();
        faults.iter().any(|it| it.contains("WRONGPASS"))
    });
}

/// As `openssl req -x509` makes it: it signs itself, and says that it is an authority.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_its_own_authority_is_believed_by_who_has_it() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let own = Identity::self_signed("127.0.0.1");
    own.write(folder.path());
    put(&folder.path().join("ca.pem"), &own.certificate);
    let server = Server::encrypted(folder.path(), &[]);
    let url = format!("rediss://127.0.0.1:{}/", server.tls_port());
    let store = node(&url, folder.path());
    eventually("it is reached", || store.hash_key().is_some());
    let limit = limit(Algorithm::FixedWindow, 2, LASTING);
    let verdicts = decide(&store, &[step(&limit, 1)]).await;
    assert!(verdicts.expect("it answers").allowed);

    let stranger = tempfile::tempdir().expect("a folder can be made");
    let other = Identity::self_signed("127.0.0.1");
    put(&stranger.path().join("ca.pem"), &other.certificate);
    let store = node(&url, stranger.path());
    eventually("it is refused, and said why", || {
        let why = store.server_status().error.unwrap_or_default();
        why.contains("CA:TRUE") && why.contains("file of authorities")
    });
}
