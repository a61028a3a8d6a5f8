use super::*;
use crate::server_address::Address;

fn single(url: &str) -> ServerAddress {
    match Endpoint::parse(url).expect(url).deployment {
        Deployment::Single(server) => server,
        other => panic!("{url} is {other:?}"),
    }
}

#[test]
fn urls_say_where_and_how() {
    let url = "redis://app:se%20cret@10.0.0.7:6390/3?prefix=eu:";
    let endpoint = Endpoint::parse(url).unwrap();
    assert_eq!(endpoint.name(), "10.0.0.7:6390");
    assert_eq!(endpoint.prefix(), "eu:");
    assert!(!format!("{endpoint:?}").contains("cret"));
    let login = Login {
        user: Some("app".to_owned()),
        password: Some("se cret".to_owned()),
        db: 3,
    };
    assert!(*single(url).login == login);

    let unix = single("redis+unix:///run/redis.sock?db=2&pass=x");
    assert_eq!(unix.address, Address::Unix("/run/redis.sock".into()));
    assert_eq!(
        (unix.login.db, unix.login.password.as_deref()),
        (2, Some("x"))
    );
    let tls = single("valkeys://[::1]");
    assert_eq!(
        (tls.name().as_str(), tls.tls.is_some()),
        ("[::1]:6379", true)
    );
}

#[test]
fn several_hosts_have_one_login() {
    let endpoint = Endpoint::parse("rediss+cluster://:pw@a:1,b,[::1]:3/?prefix=x").unwrap();
    assert_eq!(
        (endpoint.name().as_str(), endpoint.prefix()),
        ("a:1,b:6379,[::1]:3", "x")
    );
    let Deployment::Cluster(nodes) = endpoint.deployment else {
        panic!("a cluster");
    };
    assert!(nodes.iter().all(|server| server.tls.is_some()));
    assert!(
        nodes
            .iter()
            .all(|server| server.login.password.as_deref() == Some("pw"))
    );

    let url = "redis+sentinel://app:pw@a,b:1/main/2?sentinel_pass=other";
    let endpoint = Endpoint::parse(url).unwrap();
    assert_eq!(endpoint.name(), "main by a:26379,b:1");
    assert!(!format!("{endpoint:?}").contains("pw"));
    let Deployment::Sentinel(set) = endpoint.deployment else {
        panic!("sentinels");
    };
    assert_eq!((set.login.db, set.login.user.as_deref()), (2, Some("app")));
    let asked = &set.sentinels[1].login;
    assert_eq!((asked.db, asked.user.as_deref()), (0, None));
    assert_eq!(asked.password.as_deref(), Some("other"));
}

#[test]
fn files_are_for_what_is_encrypted() {
    let files = TlsFiles {
        authorities: Some("/nowhere/ca.pem".into()),
        identity: None,
    };
    let plain = Endpoint::parse("redis://h/").unwrap();
    assert!(plain.check_tls().is_ok());
    assert!(plain.with_tls(files.clone()).is_none());
    for url in [
        "rediss://h/",
        "rediss+cluster://a,b",
        "rediss+sentinel://a,b/main",
    ] {
        let endpoint = Endpoint::parse(url)
            .unwrap()
            .with_tls(files.clone())
            .unwrap();
        let said = endpoint.check_tls().unwrap_err().to_string();
        assert!(
            said.starts_with("the authorities in /nowhere/ca.pem cannot be used: No such"),
            "{said}"
        );
    }
}

#[test]
fn what_is_wrong_is_said_without_the_password() {
    for (url, part) in [
        ("redis.example.com", "redis://HOST:PORT/"),
        ("http://:secret@h/", "redis://HOST:PORT/"),
        ("http+cluster://:secret@h/", "redis://HOST:PORT/"),
        ("redis+cluster://:secret@h:x/", "redis://HOST:PORT/"),
        ("redis://:secret@h/zero", "database number"),
        ("redis://:secret@h/?pool=3", "`pool`"),
        ("redis://:secret@h/?sentinel_pass=secret", "`sentinel_pass`"),
        ("redis://:secret@h/?prefix={a}", "braces"),
        ("rediss://:secret@h/#insecure", "verified"),
        ("redis://secret@h/", "no password"),
        ("redis://:secret@a:1,b:2/", "redis+cluster://"),
        ("redis+cluster://:secret@a,b/3", "number 0"),
        ("redis+sentinel://:secret@a,b/", "name is missing"),
        ("redis+sentinel://:secret@a,b/main/x", "database number"),
    ] {
        let said = Endpoint::parse(url).expect_err(url).to_string();
        assert!(said.contains(part), "{url}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}
