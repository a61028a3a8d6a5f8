//! Keeps the tenants in memory in step with the database.
//!
//! Every second the database is asked for changes after the last one that is known; on PostgreSQL a
//! notification says when to ask at once. After a failure everything is read again, since the database may
//! be another one, and so it is where the trail of changes has another hash than the one that was read. Whatever happens, the last good tenants stay in force.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ratekeeper_core::Micros;
use ratekeeper_rules::TenantIndex;
use sqlx::postgres::PgListener;
use tokio::sync::{Mutex, Notify};
use tokio::task::{JoinHandle, JoinSet, spawn_blocking};
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use crate::boot::BootInstant;
use crate::database::{CHANNEL, DatabaseKind};
use crate::head::{Head, Newest};
use crate::saved;
use crate::status::{QuotaStatus, Source};
use crate::store::joined;
use crate::{FleetRecord, QuotaError, QuotaStore, with_causes};

/// The interval at which the database is asked for changes.
const POLL: Duration = Duration::from_secs(1);

/// The time after which a server that refuses is asked again at the start.
const AGAIN: Duration = Duration::from_millis(50);

/// The longest time without an answer after which the next one is still trusted to have all changes:
/// traces of deleted tenants are kept for longer.
const GAP_MAX: Duration = Duration::from_secs(3_600);

/// The age at which traces of deleted tenants go.
const TRACES_KEPT: Micros = Micros::from_secs(24 * 3_600);

/// The interval at which they are looked for.
const FORGETS_EVERY: Duration = Duration::from_secs(3_600);

/// The shortest time between two savings of the copy.
const SAVED_EVERY: Duration = Duration::from_secs(10);

/// The settings of a [`Follower`].
#[derive(Clone, Debug, Default)]
pub struct FollowerConfig {
    /// The file for the copy of all tenants that a start without the database goes by.
    pub saved: Option<PathBuf>,
    /// True if tenants have no limits for as long as their limits are unknown: neither the database nor the saved
    /// copy. Otherwise they are on the default plan.
    pub allows_unknown: bool,
    /// The saved copy of tokens and switches, for a start without the database.
    pub fleet: Option<FleetRecord>,
}

/// Puts tenants in force and returns how many plans and limits of theirs mean nothing under the rules.
type Apply = dyn Fn(TenantIndex) -> usize + Send + Sync;

/// Keeps the tenants in memory in step with the database, until it is dropped.
pub struct Follower {
    status: QuotaStatus,
    task: JoinHandle<()>,
    listening: JoinHandle<()>,
    wake: Arc<Notify>,
    copy: Arc<Mutex<Copy>>,
}

impl Follower {
    /// Puts the tenants in force by `apply`, now and whenever they change. Waits up to `patience` for the
    /// database; then, the saved copy is in force until the database is there.
    pub async fn start(
        store: QuotaStore,
        config: FollowerConfig,
        apply: impl Fn(TenantIndex) -> usize + Send + Sync + 'static,
        patience: Duration,
    ) -> Self {
        let status = QuotaStatus::default();
        let store = store.with_kept_connection();
        let mut copy = Copy::new(store, config, Arc::new(apply), status.clone());
        match timeout(patience, copy.look_first()).await {
            Ok(()) if copy.is_whole => {}
            in_time => {
                if in_time.is_err() {
                    copy.failed(&QuotaError::TooSlow(patience));
                }
                copy.load_saved().await;
            }
        }
        let wake = Arc::new(Notify::new());
        let (store, woken) = (copy.store.clone(), Arc::clone(&wake));
        let listen = move || listen(store.clone(), Arc::clone(&woken));
        let listening = tokio::spawn(begin_again(listen));
        let copy = Arc::new(Mutex::new(copy));
        let task = tokio::spawn(keep(Arc::clone(&copy), Arc::clone(&wake)));
        Self {
            status,
            task,
            listening,
            wake,
            copy,
        }
    }

    /// Saves the copy as it is now, for a clean stop.
    pub async fn save(&self) {
        self.copy.lock().await.save(SaveWhen::Changed).await;
    }

    /// The state of the copy, for operators.
    #[must_use]
    pub const fn quota_status(&self) -> &QuotaStatus {
        &self.status
    }

    /// Asks the database for changes now: after a change through this node, which is in force here at once
    /// then.
    pub fn look(&self) {
        self.wake.notify_one();
    }
}

impl fmt::Debug for Follower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Follower");
        shown.field("status", &self.status).finish_non_exhaustive()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
        self.listening.abort();
    }
}

/// Looks for changes for ever, and goes on after a mistake of ours.
async fn keep(copy: Arc<Mutex<Copy>>, wake: Arc<Notify>) {
    loop {
        tokio::select! {
            () = wake.notified() => {}
            () = sleep(POLL) => {}
        }
        let copy = Arc::clone(&copy);
        // A set, so that it ends with us.
        let mut look = JoinSet::new();
        look.spawn(async move {
            let mut copy = copy.lock().await;
            copy.look().await;
            copy.save(SaveWhen::Due).await;
            copy.tidy().await;
        });
        if let Some(Err(error)) = look.join_next().await {
            warn!(%error, "reading the quota database has failed: please report this bug");
        }
    }
}

/// Does what `begin` begins until it ends, and begins it again after a mistake of ours. Until then, polling alone finds changes.
async fn begin_again<F>(mut begin: impl FnMut() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        // A set, so that it ends with us.
        let mut work = JoinSet::new();
        work.spawn(begin());
        match work.join_next().await {
            Some(Err(error)) => {
                warn!(%error, "listening to the quota database has failed: please report this bug");
            }
            Some(Ok(())) | None => return,
        }
        sleep(POLL).await;
    }
}

/// Wakes whoever follows when PostgreSQL announces a change.
async fn listen(store: QuotaStore, wake: Arc<Notify>) {
    if store.address().kind() != DatabaseKind::Postgres {
        return;
    }
    loop {
        if let Ok(mut listener) = PgListener::connect(store.address().url()).await
            && listener.listen(CHANNEL).await.is_ok()
        {
            while listener.recv().await.is_ok() {
                wake.notify_one();
            }
        }
        // Until it is back, polling alone finds changes.
        sleep(POLL).await;
    }
}

/// The condition for saving a copy that has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SaveWhen {
    /// The last time was long enough ago.
    Due,
    /// None: it has changed.
    Changed,
}

/// A node's copy of the tenants.
struct Copy {
    store: QuotaStore,
    config: FollowerConfig,
    apply: Arc<Apply>,
    status: QuotaStatus,
    index: TenantIndex,
    /// The last change that is in the index.
    head: Head,
    /// False if the index has to be read again.
    is_whole: bool,
    /// True once the index was read whole. It is saved from then on, also while the database is away.
    is_read: bool,
    /// The time of the last answer.
    asked: BootInstant,
    /// The last change that was saved.
    saved: Option<Head>,
    /// The time of the last attempt to save.
    save_tried: Option<Instant>,
    /// True while the copy cannot be saved, which is logged once.
    is_save_failing: bool,
    /// The last time that traces of deleted tenants were dropped.
    tidied: BootInstant,
}

impl Copy {
    /// A copy of which nothing was read yet.
    fn new(
        store: QuotaStore,
        config: FollowerConfig,
        apply: Arc<Apply>,
        status: QuotaStatus,
    ) -> Self {
        Self {
            index: TenantIndex::new(store.key().clone()),
            store,
            config,
            apply,
            status,
            head: Head::default(),
            is_whole: false,
            is_read: false,
            asked: BootInstant::now(),
            saved: None,
            save_tried: None,
            is_save_failing: false,
            tidied: BootInstant::now(),
        }
    }

    /// Asks for changes, and puts them in force.
    async fn look(&mut self) {
        if self.asked.elapsed() > GAP_MAX {
            self.is_whole = false;
        }
        match self.read().await {
            Ok(()) => {
                self.asked = BootInstant::now();
                if let Some(away) = self.status.answered() {
                    info!(away_s = away.as_secs(), "the quota database answers again");
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// The same for the first time: a server that refuses may be about to start.
    async fn look_first(&mut self) {
        while let Err(error) = self.store.prepare().await
            && error.is_refusal()
        {
            sleep(AGAIN).await;
        }
        self.look().await;
    }

    async fn read(&mut self) -> Result<(), QuotaError> {
        let Newest {
            head: newest,
            goes_on,
        } = self.store.newest(&self.head).await?;
        if self.is_whole && newest == self.head {
            return Ok(());
        }
        let mut next = (self.index.clone(), self.head.version);
        let goes_on = goes_on && self.is_whole;
        if !goes_on {
            next = (TenantIndex::new(self.store.key().clone()), 0);
        }
        if self.is_whole && !goes_on {
            let (known, now) = (self.head.version, newest.version);
            warn!(
                known,
                now, "the quota database has lost changes that this node knows: all is read again"
            );
        }
        // First, since all tenants of a large database take a while.
        let known = self.status.fleet().filter(|_| goes_on);
        self.read_fleet(known).await?;
        let (index, version) = self.read_tenants(next).await?;
        let mut head = newest;
        if version > head.version {
            // Before a tenant that has changed meanwhile, a token or a switch may have.
            self.read_fleet(self.status.fleet()).await?;
            head = self.store.head_at(version).await?;
        }
        self.put(index, head, Source::Database).await;
        self.is_whole = true;
        self.is_read = true;
        Ok(())
    }

    /// Puts tokens and switches in force, unless they are `known`.
    async fn read_fleet(&self, known: Option<Arc<FleetRecord>>) -> Result<(), QuotaError> {
        if let Some(fleet) = self.store.fleet_unless(known.as_deref()).await? {
            self.status.fleet_in_force(fleet);
        }
        Ok(())
    }

    /// Adds the tenants that have changed since `version` to `index`; returns it with the number of the last change of one.
    async fn read_tenants(
        &self,
        (mut index, mut version): (TenantIndex, u64),
    ) -> Result<(TenantIndex, u64), QuotaError> {
        loop {
            let changes = self.store.changes(version).await?;
            let Some(last) = changes.last() else {
                return Ok((index, version));
            };
            version = last.record.version;
            index = blocking(move || {
                for kept in &changes {
                    let (id, quotas) = (&kept.record.id, &kept.record.quotas);
                    match (kept.is_deleted, quotas.epoch) {
                        (true, 0) => index.remove(&id.domain, id.hash),
                        (true, epoch) => index.put_trace(&id.domain, id.hash, epoch),
                        (false, _) => index.put(&id.domain, id.hash, quotas),
                    }
                }
                index
            })
            .await;
        }
    }

    async fn put(&mut self, index: TenantIndex, head: Head, source: Source) {
        let version = head.version;
        let (apply, copy) = (Arc::clone(&self.apply), index.clone());
        let unknown = blocking(move || apply(copy)).await;
        let tenants = index.len();
        self.status.in_force(source, version, tenants, unknown);
        if self.head != head || !self.is_whole {
            info!(version, tenants, unknown, "new quotas of tenants in use");
        }
        (self.index, self.head) = (index, head);
    }

    fn failed(&mut self, error: &QuotaError) {
        self.is_whole = false;
        let why = with_causes(error);
        if self.status.failed(why.clone()) {
            warn!(%why, "the quota database does not answer; tenants keep the quotas known to this node");
        }
    }

    /// Puts the saved copy in force, or says that there is none.
    async fn load_saved(&mut self) {
        // What the database has told before it fell silent is newer.
        if let Some(fleet) = self.config.fleet.take()
            && self.status.fleet().is_none()
        {
            self.status.fleet_in_force(fleet);
        }
        let key = self.store.key().clone();
        let path = self.config.saved.clone();
        let loaded = match path.clone() {
            Some(path) => blocking(move || saved::load(&path, &key)).await,
            None => Ok(None),
        };
        match loaded {
            Ok(Some((index, version))) => {
                info!(
                    version,
                    tenants = index.len(),
                    "the saved quotas of tenants are in use"
                );
                let head = Head {
                    version,
                    ..Head::default()
                };
                self.put(index, head, Source::Saved).await;
                return;
            }
            Ok(None) => {}
            Err(error) => warn!(%error, path = ?path, "the saved quotas of tenants cannot be used"),
        }
        let key = self.store.key().clone();
        let unread = match self.config.allows_unknown {
            true => TenantIndex::allowing_all(key),
            false => TenantIndex::new(key),
        };
        self.put(unread, Head::default(), Source::Nothing).await;
    }

    /// Drops traces of deleted tenants that every node has seen.
    async fn tidy(&mut self) {
        if !self.is_whole || self.tidied.elapsed() < FORGETS_EVERY {
            return;
        }
        self.tidied = BootInstant::now();
        // What is not dropped now is dropped in an hour.
        let _ = self.store.forget_deleted(TRACES_KEPT).await;
    }

    /// Saves the copy if it has changed since it was saved.
    async fn save(&mut self, when: SaveWhen) {
        let Some(path) = self.config.saved.clone() else {
            return;
        };
        let tried = self.save_tried;
        let is_time =
            when == SaveWhen::Changed || tried.is_none_or(|tried| tried.elapsed() >= SAVED_EVERY);
        if !self.is_read || self.saved.as_ref() == Some(&self.head) || !is_time {
            return;
        }
        self.save_tried = Some(Instant::now());
        let (index, head) = (self.index.clone(), self.head.clone());
        let version = head.version;
        let shown = path.clone();
        let saved = blocking(move || saved::save(&path, &index, version)).await;
        let was_failing = std::mem::replace(&mut self.is_save_failing, saved.is_err());
        let path = shown.display();
        match saved {
            Ok(()) => {
                self.saved = Some(head);
                if was_failing {
                    info!(%path, "the quotas of tenants are saved again");
                }
            }
            Err(error) if !was_failing => {
                warn!(%error, %path, "the quotas of tenants cannot be saved; it is tried every ten seconds");
            }
            Err(_) => {}
        }
    }
}

/// Runs what takes long on a thread where it delays no request.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    joined(spawn_blocking(work)).await
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use ratekeeper_rules::{
        Options, RuleSet, Source as RuleSource, TenantKey, TenantPlan, TenantQuotas, load,
    };
    use ratekeeper_testkit::postgres::Server;
    use tempfile::TempDir;

    use super::*;
    use crate::rows;
    use crate::store::CONNECTIONS;
    use crate::{DatabaseAddress, Editor, FleetToken, Precondition, TenantId, TenantPut};

    const RULES: &str = "domain: d
evaluation: path
tenant: customer
plans: [free, pro]
descriptors:
- key: customer
  rate_limit: { unit: minute, requests_per_unit: 100 }
  plans:
    pro: { unit: minute, requests_per_unit: 1000 }
";

    fn rules() -> RuleSet {
        let source = RuleSource {
            name: "rules.yaml".to_owned(),
            text: RULES.to_owned(),
        };
        let loaded = load(&[source], &Options::default());
        loaded.expect("the rules are right").rules
    }

    fn editor() -> Editor {
        Editor {
            name: "alice".to_owned(),
            source: "127.0.0.1:1".to_owned(),
            request_id: "r-1".to_owned(),
        }
    }

    async fn add_tenant(store: &QuotaStore, name: &str) {
        let pro = TenantQuotas {
            plans: vec![TenantPlan::new("pro")],
            ..TenantQuotas::default()
        };
        let put = TenantPut::now(TenantId::of_value("d", name, false, store.key()), pro);
        let put = store
            .put(&put, Precondition::Any, &editor(), &rules())
            .await;
        put.expect("it can be put");
    }

    fn copy_of(store: &QuotaStore) -> Copy {
        let config = FollowerConfig::default();
        let status = QuotaStatus::default();
        Copy::new(store.clone(), config, Arc::new(|_| 0), status)
    }

    /// Drops traces by a node whose clock is a week ahead, after one whose clock is a week behind has deleted a tenant of
    /// two, `age` ago. Returns the number of traces that are left.
    async fn traces_after(age: Duration) -> usize {
        const WEEK: i64 = 7 * 24 * 3_600 * 1_000_000;
        let folder = tempfile::tempdir().expect("a folder can be made");
        let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
        let store = QuotaStore::new(address, TenantKey::from_bytes([7; 16]));
        let store = store.expect("the address is right");
        add_tenant(&store, "gone").await;
        add_tenant(&store, "there").await;
        let (gone, by) = (
            TenantId::of_value("d", "gone", false, store.key()),
            editor(),
        );
        rows::AHEAD_MICROS.set(-WEEK);
        let deleted = store.delete("d", gone.hash, Precondition::Any, &by);
        deleted.await.expect("it is there");
        let aged = sqlx::query("UPDATE tenant SET deleted_at = deleted_at - $1");
        let age = i64::try_from(age.as_micros()).expect("it is short");
        let aged = aged.bind(age).execute(&store.pool).await;
        aged.expect("it can be written");
        rows::AHEAD_MICROS.set(WEEK);
        store.forget_deleted(TRACES_KEPT).await.expect("it answers");
        rows::AHEAD_MICROS.set(0);
        let left = store.changes(0).await.expect("it answers");
        let traces = left.iter().filter(|kept| kept.is_deleted).count();
        assert_eq!(left.len() - traces, 1, "nobody has deleted the other one");
        traces
    }

    #[tokio::test]
    async fn traces_of_deleted_tenants_are_kept_for_a_day_whatever_the_clocks_of_nodes_say() {
        let hour = Duration::from_secs(3_600);
        assert_eq!(traces_after(23 * hour).await, 1);
        assert_eq!(traces_after(25 * hour).await, 0);
    }

    #[tokio::test]
    async fn listening_goes_on_after_a_panic() {
        let mut times = 0;
        let (done, mut is_done) = tokio::sync::mpsc::channel(1);
        let listen = move || {
            times += 1;
            let (time, done) = (times, done.clone());
            async move {
                assert!(time > 1, "a mistake of ours");
                done.send(time).await.expect("it is read");
            }
        };
        begin_again(listen).await;
        assert_eq!(is_done.recv().await, Some(2));
    }

    #[test]
    fn a_token_that_is_revoked_while_tenants_are_read_does_not_stay() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build();
        let runtime = runtime.expect("a runtime can be made");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let address = DatabaseAddress::sqlite(&folder.path().join("quotas.db"));
        runtime.block_on(async {
            let store = QuotaStore::new(address, TenantKey::from_bytes([7; 16]));
            let store = store.expect("the address is right");
            let token = FleetToken {
                name: "ops".into(),
                role: "admin".into(),
                sha256: "0".repeat(64).into(),
                created_at: 1_800_000_000,
            };
            let made = store.create_token(&token, &editor()).await;
            made.expect("it can be made");
            add_tenant(&store, "early").await;

            let mut copy = copy_of(&store);
            let status = copy.status.clone();
            let mut fleet = status.fleet_changes();
            // The one thread that takes the tenants in is busy until both changes are made.
            let (done, busy) = mpsc::channel::<()>();
            let _busy = spawn_blocking(move || busy.recv());
            let change = async {
                fleet.changed().await.expect("the status is there");
                let revoked = store.revoke_token("ops", &editor()).await;
                revoked.expect("it can be revoked");
                add_tenant(&store, "late").await;
                drop(done);
            };
            tokio::join!(copy.look(), change);
            assert_eq!((status.version(), status.tenants()), (4, 2));
            // Nothing is new any more.
            copy.look().await;
            let fleet = status.fleet().expect("it has read the tokens");
            assert_eq!(fleet.tokens, Vec::new());
        });
    }

    /// Two databases of a kind, which end with the test.
    struct Databases {
        stores: [QuotaStore; 2],
        _ends: (TempDir, Option<Server>),
    }

    fn databases(kind: DatabaseKind) -> Databases {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let server = (kind == DatabaseKind::Postgres).then(Server::start);
        let stores = ["first", "second"].map(|name| {
            let address = match &server {
                None => DatabaseAddress::sqlite(&folder.path().join(name)),
                Some(server) => server.create(name).parse().expect("it is an address"),
            };
            let store = QuotaStore::new(address, TenantKey::from_bytes([7; 16]));
            store.expect("the address is right")
        });
        Databases {
            stores,
            _ends: (folder, server),
        }
    }

    async fn add_token(store: &QuotaStore, name: &str) {
        let token = FleetToken {
            name: name.into(),
            role: "admin".into(),
            sha256: format!("{name:0>64}").into(),
            created_at: 1_800_000_000,
        };
        let made = store.create_token(&token, &editor()).await;
        made.expect("it can be made");
    }

    /// The tenants and the tokens of a copy.
    fn told(copy: &Copy) -> (u64, Vec<Box<str>>) {
        let fleet = copy.status.fleet().expect("it has read the tokens");
        let tokens = fleet.tokens.iter().map(|token| token.name.clone());
        (copy.status.tenants(), tokens.collect())
    }

    /// A standby takes over that has given the last numbers to other changes.
    async fn takes_over(kind: DatabaseKind) {
        let Databases {
            stores: [gone, now],
            _ends,
        } = databases(kind);
        add_token(&gone, "ops").await;
        add_tenant(&gone, "a").await;
        add_tenant(&gone, "b").await;
        add_token(&now, "other").await;
        add_tenant(&now, "c").await;
        add_token(&now, "third").await;
        let mut copies = [copy_of(&gone), copy_of(&gone)];
        for copy in &mut copies {
            copy.look().await;
            assert_eq!(told(copy), (2, vec!["ops".into()]));
            assert_eq!(copy.head.version, 3);
            copy.store = now.clone();
        }
        let [at_once, later] = &mut copies;
        at_once.look().await;
        assert_eq!(told(at_once), (1, vec!["other".into(), "third".into()]));
        assert_eq!(at_once.head.version, 3, "as many as before");
        // The other one looks after one more change.
        add_tenant(&now, "d").await;
        for copy in [at_once, later] {
            copy.look().await;
            assert_eq!(told(copy), (2, vec!["other".into(), "third".into()]));
        }
    }

    #[tokio::test]
    async fn sqlite_changes_of_equal_number_are_told_apart() {
        takes_over(DatabaseKind::Sqlite).await;
    }

    #[tokio::test]
    async fn postgres_changes_of_equal_number_are_told_apart() {
        takes_over(DatabaseKind::Postgres).await;
    }

    /// All connections but the follower's own are in use, as by slow exports and imports.
    async fn follows_beside_slow_operations(kind: DatabaseKind) {
        let Databases {
            stores: [store, _],
            _ends,
        } = databases(kind);
        add_tenant(&store, "acme").await;
        let mut slow = Vec::new();
        for _ in 0..CONNECTIONS {
            slow.push(store.pool.acquire().await.expect("it connects"));
        }
        let patience = Duration::from_secs(60);
        let (config, apply) = (FollowerConfig::default(), |_| 0);
        let follower = Follower::start(store.clone(), config, apply, patience).await;
        let status = follower.quota_status();
        assert_eq!((status.version(), status.failures()), (1, 0));
    }

    #[tokio::test]
    async fn sqlite_is_followed_beside_slow_operations() {
        follows_beside_slow_operations(DatabaseKind::Sqlite).await;
    }

    #[tokio::test]
    async fn postgres_is_followed_beside_slow_operations() {
        follows_beside_slow_operations(DatabaseKind::Postgres).await;
    }

    #[tokio::test]
    async fn after_an_hour_without_an_answer_all_is_read_again() {
        let Databases {
            stores: [store, _],
            _ends,
        } = databases(DatabaseKind::Sqlite);
        add_tenant(&store, "acme").await;
        let mut copy = copy_of(&store);
        for (age, changes) in [(Duration::ZERO, 1), (GAP_MAX / 2, 1), (2 * GAP_MAX, 2)] {
            copy.asked = BootInstant::now().before(age);
            copy.look().await;
            assert_eq!(copy.status.changes(), changes, "{age:?}");
        }
    }
}
