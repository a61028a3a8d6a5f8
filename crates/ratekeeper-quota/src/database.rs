//! The connections to a database, and its tables.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ratekeeper_core::formats::QUOTA_TABLES;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions, AnyRow};
use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::PgConnection;
use sqlx::{Any, AnyPool, Connection, Row, SqlSafeStr, Transaction};
use tokio::sync::OnceCell;
use tokio::time::timeout;

use crate::QuotaError;
use crate::error::is_refusal;
use crate::file::FileId;

/// The longest time one operation may take.
pub(crate) const OPERATION_MAX: Duration = Duration::from_secs(10);

/// The longest time to connect, of that.
const CONNECT_MAX: Duration = Duration::from_secs(3);

/// The PostgreSQL channel on which changes are announced.
pub(crate) const CHANNEL: &str = "ratekeeper_quota";

/// The kind of a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatabaseKind {
    /// A file on this machine, for one node.
    Sqlite,
    /// A server that nodes share.
    Postgres,
}

/// The address of a database. It displays without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseAddress {
    url: String,
    /// The file of SQLite.
    path: Option<PathBuf>,
}

impl DatabaseAddress {
    /// The SQLite file at `path`, which is made if it is not there.
    #[must_use]
    pub fn sqlite(path: &Path) -> Self {
        let mut url = "sqlite://".to_owned();
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        for byte in path.to_string_lossy().bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                    url.push(byte.into());
                }
                _ => url.push_str(&format!("%{byte:02X}")),
            }
        }
        url.push_str("?mode=rwc");
        Self {
            url,
            path: Some(path),
        }
    }

    /// The file, if it is one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The kind of the database.
    #[must_use]
    pub const fn kind(&self) -> DatabaseKind {
        match self.path {
            Some(_) => DatabaseKind::Sqlite,
            None => DatabaseKind::Postgres,
        }
    }

    /// The file that is there now, for SQLite. A server is always the same one.
    pub(crate) fn file(&self) -> Result<FileId, QuotaError> {
        let Some(path) = &self.path else {
            return Ok(FileId::default());
        };
        FileId::at(path).map_err(|error| QuotaError::FileGone(path.clone(), Some(error)))
    }

    /// Checks that the file of SQLite is `known`, the one that was opened first.
    pub(crate) fn check_file(&self, known: FileId) -> Result<(), QuotaError> {
        match &self.path {
            Some(path) if self.file()? != known => Err(QuotaError::FileGone(path.clone(), None)),
            _ => Ok(()),
        }
    }

    /// The options of connections to a database that exists: they make no file.
    pub(crate) fn existing(&self) -> Result<AnyConnectOptions, QuotaError> {
        let url = match &self.path {
            Some(_) => self.url.replace("?mode=rwc", "?mode=rw"),
            None => self.url.clone(),
        };
        AnyConnectOptions::from_str(&url).map_err(|error| QuotaError::BadAddress(Some(error)))
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Connects once to the server of PostgreSQL. A pool takes a refusal for the server's start, and tries again until its
    /// time is over; this tells it.
    ///
    /// # Errors
    /// The server refuses, or does not answer within [`CONNECT_MAX`]. Whatever else is wrong, who uses a connection is told.
    pub(crate) async fn check_reachable(&self) -> Result<(), QuotaError> {
        if self.kind() == DatabaseKind::Sqlite {
            return Ok(());
        }
        match timeout(CONNECT_MAX, PgConnection::connect(&self.url)).await {
            Ok(Ok(connection)) => {
                // The server notices it either way.
                let _ = connection.close().await;
                Ok(())
            }
            Ok(Err(error)) if is_refusal(&error) => Err(error.into()),
            Ok(Err(_)) => Ok(()),
            Err(_) => Err(sqlx::Error::PoolTimedOut.into()),
        }
    }

    /// At most so many connections, which are made as needed, to the `known` file only once there is one.
    pub(crate) fn pool(
        &self,
        connections: u32,
        known: Arc<OnceCell<FileId>>,
    ) -> Result<AnyPool, QuotaError> {
        sqlx::any::install_default_drivers();
        let options = AnyConnectOptions::from_str(&self.url);
        let options = options.map_err(|error| QuotaError::BadAddress(Some(error)))?;
        let pool = AnyPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(CONNECT_MAX)
            .idle_timeout(Duration::from_secs(300));
        if self.kind() == DatabaseKind::Postgres {
            return Ok(pool.connect_lazy_with(options));
        }
        let address = self.clone();
        let pool = pool.after_connect(move |connection, _| {
            let checked = known.get().map_or(Ok(()), |it| address.check_file(*it));
            Box::pin(async move {
                checked.map_err(|error| sqlx::Error::Io(io::Error::other(error)))?;
                // Readers do not wait for a writer, nor a writer for readers.
                let wal = sqlx::query("PRAGMA journal_mode = WAL");
                wal.execute(connection).await?;
                Ok(())
            })
        });
        Ok(pool.connect_lazy_with(options))
    }
}

impl FromStr for DatabaseAddress {
    type Err = QuotaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("sqlite://")
            && !path.is_empty()
        {
            return Ok(Self::sqlite(Path::new(path)));
        }
        let is_postgres = ["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| text.starts_with(scheme));
        if !is_postgres {
            return Err(QuotaError::BadAddress(None));
        }
        let address = Self {
            url: text.to_owned(),
            path: None,
        };
        sqlx::any::install_default_drivers();
        match sqlx::postgres::PgConnectOptions::from_str(text) {
            Ok(_) => Ok(address),
            Err(error) => Err(QuotaError::BadAddress(Some(error))),
        }
    }
}

impl std::fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(path) = &self.path {
            return write!(f, "sqlite://{}", path.display());
        }
        let (before, after) = self.url.split_once("://").unwrap_or(("", &self.url));
        let after = after.split('?').next().unwrap_or_default();
        let after = after.rsplit_once('@').map_or(after, |(_, after)| after);
        write!(f, "{before}://{after}")
    }
}

impl std::fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The versions of the tables, in order. Those that were released never change.
const MIGRATIONS: [(i64, &str, &str); 7] = [
    (1, "tenants", include_str!("../migrations/0001_tenants.sql")),
    (
        2,
        "adjustment",
        include_str!("../migrations/0002_adjustment.sql"),
    ),
    (
        3,
        "audit_export",
        include_str!("../migrations/0003_audit_export.sql"),
    ),
    (
        4,
        "database_id",
        include_str!("../migrations/0004_database_id.sql"),
    ),
    (5, "budgets", include_str!("../migrations/0005_budgets.sql")),
    (6, "fleet", include_str!("../migrations/0006_fleet.sql")),
    (7, "calls", include_str!("../migrations/0007_calls.sql")),
];

const _: () = assert!(MIGRATIONS.len() == QUOTA_TABLES.version as usize);

fn migrator() -> Migrator {
    let migrations = MIGRATIONS.iter().map(|&(version, name, sql)| {
        let sql = sql.into_sql_str();
        Migration::new(version, name.into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// The times that a SQLite file is tried to be brought up to date. Another process may be at it, and be the first at each
/// migration.
const ATTEMPTS: usize = MIGRATIONS.len() + 1;

/// Brings the tables up to date. Several nodes may do so at once.
pub(crate) async fn migrate(pool: &AnyPool, kind: DatabaseKind) -> Result<(), QuotaError> {
    for attempt in 1.. {
        let Err(error) = run_migrations(pool, kind).await else {
            break;
        };
        let is_raced = matches!(error, MigrateError::ExecuteMigration(..));
        // PostgreSQL has a lock for it. In SQLite the one who comes second fails, and then finds it done.
        if kind == DatabaseKind::Sqlite && is_raced && attempt < ATTEMPTS {
            continue;
        }
        return Err(match error {
            MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => {
                QuotaError::Unavailable(error)
            }
            MigrateError::VersionMissing(_) => later_tables(pool, error).await,
            error => QuotaError::Migration(error),
        });
    }
    Ok(())
}

/// Runs the migrations that are missing. In PostgreSQL that takes a lock, which the migrator keeps after an error: it would be
/// held as long as the pool has the connection, while other nodes wait. So it has a connection of its own.
async fn run_migrations(pool: &AnyPool, kind: DatabaseKind) -> Result<(), MigrateError> {
    if kind == DatabaseKind::Sqlite {
        return migrator().run(pool).await;
    }
    let one = AnyPoolOptions::new().max_connections(1);
    let own = one.connect_lazy_with(pool.connect_options().as_ref().clone());
    let done = migrator().run(&own).await;
    own.close().await;
    done
}

/// The error of tables with a migration that is not known here: most likely a later version of the program made it.
async fn later_tables(pool: &AnyPool, error: MigrateError) -> QuotaError {
    let newest = sqlx::query("SELECT MAX(version) AS newest FROM _sqlx_migrations");
    let newest = newest.fetch_one(pool).await;
    let newest: Option<i64> = newest.ok().and_then(|row| row.try_get("newest").ok());
    let newest = newest.and_then(|newest| u32::try_from(newest).ok());
    match newest.map(|newest| QUOTA_TABLES.check(newest)) {
        Some(Err(later)) => QuotaError::OtherTables(later),
        _ => QuotaError::Migration(error),
    }
}

/// Returns true if the tables of PostgreSQL are of this version and nothing has to be done, which needs no right to make tables.
pub(crate) async fn is_up_to_date(pool: &AnyPool, kind: DatabaseKind) -> bool {
    if kind == DatabaseKind::Sqlite {
        return false;
    }
    let rows =
        sqlx::query("SELECT version, success, checksum FROM _sqlx_migrations ORDER BY version");
    // The table may not be there yet: then the migrator says what it lacks.
    let Ok(rows) = rows.fetch_all(pool).await else {
        return false;
    };
    let read = |row: &AnyRow| {
        let done: bool = row.try_get("success")?;
        let (version, checksum): (i64, Vec<u8>) =
            (row.try_get("version")?, row.try_get("checksum")?);
        Ok(done.then_some((version, checksum)))
    };
    let applied: Result<Vec<_>, sqlx::Error> = rows.iter().map(read).collect();
    let migrator = migrator();
    let known = migrator
        .iter()
        .map(|it| Some((it.version, it.checksum.to_vec())));
    applied.is_ok_and(|applied| known.eq(applied))
}

/// Begins a transaction that sees one state of the database throughout.
pub(crate) async fn reading(
    pool: &AnyPool,
    kind: DatabaseKind,
) -> Result<Transaction<'static, Any>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    if kind == DatabaseKind::Postgres {
        sqlx::query("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            .execute(&mut *transaction)
            .await?;
    }
    Ok(transaction)
}
