//! The connections of one runtime, one to each shard, and the way from one to another.
//!
//! Decisions that a server provably has not carried out are sent again to the right place: at once
//! after the first redirection, and after a growing pause if that did not help. The deadline of
//! each decision ends this, not a number of attempts.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ratekeeper_store::StoreError;
use tokio::runtime::{Handle, Id};
use tokio::time::sleep_until;

use crate::config::RedisConfig;
use crate::metrics::Fault;
use crate::script::slot;
use crate::script_context::ScriptContext;
use crate::server_address::Address;
use crate::shard::Shard;
use crate::shard_connection::{ConnectionTask, ShardConnection};
use crate::stall::Stall;
use crate::topology::Topology;
use crate::waiting::{Waiting, earliest};

/// The first pause before asking again, and the amount by which each further attempt lengthens it.
const PAUSE: Duration = Duration::from_millis(1);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_millis(10);

/// The connections of one runtime, in which its decisions wait.
#[derive(Debug)]
pub(crate) struct ShardConnections {
    runtime: Handle,
    pub(crate) topology: Arc<Topology>,
    config: Arc<RedisConfig>,
    context: Arc<ScriptContext>,
    stall: Arc<Stall>,
    list: Mutex<Vec<KeptConnection>>,
    this: Weak<Self>,
}

#[derive(Debug)]
struct KeptConnection {
    conn: Arc<ShardConnection>,
    _task: ConnectionTask,
}

/// The place to send a decision that was not carried out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Elsewhere {
    /// The shard in the map at that time.
    ByMap,
    /// This server, just once: the slot is migrating.
    Ask(Address),
}

impl ShardConnections {
    pub(crate) fn new(
        topology: Arc<Topology>,
        config: Arc<RedisConfig>,
        context: Arc<ScriptContext>,
        runtime: Handle,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            runtime,
            topology,
            config,
            context,
            stall: Arc::new(Stall::new()),
            list: Mutex::default(),
            this: this.clone(),
        })
    }

    pub(crate) fn runtime(&self) -> Id {
        self.runtime.id()
    }

    /// Returns the connection to `shard`.
    pub(crate) fn to(&self, shard: &Arc<Shard>) -> Arc<ShardConnection> {
        let mut list = self.list.lock();
        let leads_there = |kept: &&KeptConnection| {
            Arc::ptr_eq(&kept.conn.shard, shard) && !kept.conn.queue.is_closed()
        };
        if let Some(kept) = list.iter().find(leads_there) {
            return Arc::clone(&kept.conn);
        }
        let (conn, task) = ShardConnection::start(
            Arc::clone(shard),
            Arc::clone(&self.config),
            Arc::clone(&self.context),
            Arc::clone(&self.stall),
            self.this.clone(),
            &self.runtime,
        );
        // Connections to servers that no longer serve have ended; those of a runtime end together.
        let is_alive = |kept: &KeptConnection| !kept.conn.queue.is_closed();
        if list.iter().any(is_alive) {
            list.retain(is_alive);
        }
        list.push(KeptConnection {
            conn: Arc::clone(&conn),
            _task: task,
        });
        conn
    }

    /// Returns true if the runtime has ended, and its connections with it.
    pub(crate) fn is_closed(&self) -> bool {
        let list = self.list.lock();
        !list.is_empty() && list.iter().all(|kept| kept.conn.queue.is_closed())
    }

    /// Sends elsewhere, or later, the groups that `shard` has not carried out.
    pub(crate) fn again(
        &self,
        shard: &Arc<Shard>,
        mut waiting: Vec<Waiting>,
        elsewhere: &Elsewhere,
    ) {
        let mut attempts = 0;
        for waiting in &mut waiting {
            waiting.members.attempts = waiting.members.attempts.saturating_add(1);
            attempts = attempts.max(waiting.members.attempts);
        }
        if attempts <= 1 {
            return self.send(shard, waiting, elsewhere);
        }
        let pause = (PAUSE * u32::from(attempts)).min(PAUSE_MAX);
        let Some(this) = self.this.upgrade() else {
            return;
        };
        let (shard, elsewhere) = (Arc::clone(shard), elsewhere.clone());
        self.runtime.spawn(async move {
            let resumes = Instant::now() + pause;
            let mut wakes = None;
            loop {
                let now = Instant::now();
                if let Some(due) = wakes {
                    this.stall.ran(due, now);
                }
                if now >= resumes {
                    return this.send(&shard, waiting, &elsewhere);
                }
                let mut next = None;
                for waiting in &mut waiting {
                    let deadline = this.expire(&shard, waiting, now);
                    next = earliest(next, deadline);
                }
                let next = next.map_or(resumes, |next| next.min(resumes));
                wakes = Some(next);
                sleep_until(next.into()).await;
            }
        });
    }

    fn send(&self, from: &Arc<Shard>, waiting: Vec<Waiting>, elsewhere: &Elsewhere) {
        for mut waiting in waiting {
            self.expire(from, &mut waiting, Instant::now());
            if waiting.is_over() {
                continue;
            }
            let shard = match elsewhere {
                Elsewhere::Ask(address) => self.topology.shard_at(address),
                Elsewhere::ByMap => {
                    let key = waiting.group.first_key();
                    let map = self.topology.map();
                    key.and_then(|key| map.shard(slot(key.subject)).cloned())
                }
            };
            waiting.members.is_asking = *elsewhere != Elsewhere::ByMap;
            match shard.filter(|shard| shard.breaker.is_closed()) {
                Some(shard) => self.to(&shard).queue.put_back(waiting),
                None => {
                    let failed = waiting.members.fail(StoreError::Unavailable);
                    from.metrics.fault(Fault::Refused, failed);
                }
            }
        }
    }

    /// Fails the requests whose deadline passed without an answer from `shard`; returns the next deadline.
    fn expire(&self, shard: &Shard, waiting: &mut Waiting, now: Instant) -> Option<Instant> {
        let (members, stood) = (&mut waiting.members, self.stall.mark());
        // The server has refused them, so that no late answer comes.
        members.forgo_late();
        let (expired, next) = members.expire_first(now, stood, StoreError::Unavailable);
        shard.metrics.fault(Fault::Refused, expired);
        next
    }
}
