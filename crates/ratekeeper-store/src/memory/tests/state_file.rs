use std::io::Cursor;

use ratekeeper_core::{Algorithm, Limit, LimitSpec, Micros, Mode, Timestamp};

use super::{decide, limit, step, store};
use crate::memory::state_file::{FIXED_BYTES, HEADER_BYTES_MAX, checksum};
use crate::memory::{MemoryConfig, MemoryStore, StateFileError};
use crate::{Extra, Once, Request, RuleSlot, Step, Until};

fn spilling() -> Limit {
    let spec = LimitSpec::new(Algorithm::SlidingWindow, 1 << 40, Micros::from_secs(3_600));
    Limit::try_new(spec).unwrap()
}

fn saved(store: &MemoryStore, secs: u64) -> Vec<u8> {
    let mut file = Vec::new();
    let now = Timestamp::from_secs(secs);
    let saved = store.save(&mut file, b"the seed", now).unwrap();
    assert_eq!(saved.bytes, file.len() as u64);
    file
}

/// A store with a counter or two of every algorithm.
fn filled() -> (MemoryStore, Vec<(Limit, u64)>) {
    let store = store();
    let mut counters = vec![(spilling(), 100)];
    for (identity, algorithm) in (0..).zip(Algorithm::ALL) {
        counters.push((limit(algorithm, 10, 3_600), identity));
    }
    for (limit, identity) in &counters {
        for hits in [1, 2, limit.quota().min(100_000) / 2] {
            let hits = i64::try_from(hits).unwrap();
            let step = Step {
                hits,
                ..step(limit, *identity)
            };
            assert!(decide(&store, &[step], 1_000).allowed);
        }
    }
    (store, counters)
}

/// Takes a hit of each of these, and records that.
fn take_once(store: &MemoryStore, steps: &[Step]) {
    let once = Once {
        id: 1,
        until: Until::After(Micros::from_secs(60)),
        content: 0,
    };
    let extra = Extra {
        once: Some(once),
        ..Extra::default()
    };
    let taken = store.decide_now(&Request {
        extra: Some(&extra),
        ..Request::new(steps, Mode::default(), Timestamp::from_secs(1_000))
    });
    assert!(taken.allowed);
}

/// A file as version 2 wrote it: without records, and an end after them.
fn without_records(mut file: Vec<u8>) -> Vec<u8> {
    file.truncate(file.len() - 24);
    of_version(2, file)
}

/// The file with another version in front.
fn of_version(version: u8, mut file: Vec<u8>) -> Vec<u8> {
    file[8] = version;
    let header = FIXED_BYTES + b"the seed".len();
    let sum = checksum(&file[..header]);
    file[header..header + 8].copy_from_slice(&sum.to_le_bytes());
    file
}

#[test]
fn a_file_of_an_earlier_version_is_loaded() {
    let (old, _) = filled();
    let file = without_records(saved(&old, 1_000));
    let load = |file: &[u8]| store().load(&mut Cursor::new(file), Timestamp::from_secs(1_001));
    let loaded = load(&file).unwrap();
    assert_eq!(loaded.header, b"the seed");
    assert_eq!((loaded.counters, loaded.records), (8, 0));
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(load(&longer), Err(StateFileError::Corrupt)));
    let cut = &file[..file.len() - 1];
    assert!(matches!(load(cut), Err(StateFileError::Truncated)));
}

#[test]
fn counters_of_a_minute_or_more_survive() {
    let (old, counters) = filled();
    let second = limit(Algorithm::FixedWindow, 10, 1);
    assert!(decide(&old, &[step(&second, 50)], 1_000).allowed);
    let file = saved(&old, 1_000);

    let new = store();
    let loaded = new
        .load(&mut Cursor::new(&file), Timestamp::from_secs(1_001))
        .unwrap();
    assert_eq!(loaded.header, b"the seed");
    assert_eq!(loaded.saved_at, Timestamp::from_secs(1_000));
    assert_eq!((loaded.counters, loaded.expired, loaded.dropped), (8, 0, 0));
    assert_eq!(new.stats().counters, 8);
    assert_eq!(new.stats().heap_counters, old.stats().heap_counters);
    assert!(new.stats().heap_bytes <= old.stats().heap_bytes);
    for (limit, identity) in &counters {
        for hits in [0, 1, 5] {
            let step = Step {
                hits,
                ..step(limit, *identity)
            };
            let (old, new) = (decide(&old, &[step], 1_002), decide(&new, &[step], 1_002));
            assert_eq!(old, new, "{}", limit.algorithm().name());
        }
    }
    // A second save holds the same counters.
    assert_eq!(saved(&new, 1_002).len(), saved(&old, 1_002).len());
}

/// A counter is kept by how long it counts, not by the length of its window.
#[test]
fn a_bucket_by_the_second_that_fills_for_hours_survives() {
    let mut spec = LimitSpec::new(Algorithm::TokenBucket, 10, Micros::from_secs(1));
    spec.burst = Some(100_000);
    let bucket = Limit::try_new(spec).unwrap();
    let old = store();
    let take = |store: &MemoryStore, identity, hits, secs| {
        let step = Step {
            hits,
            ..step(&bucket, identity)
        };
        decide(store, &[step], secs).allowed
    };
    assert!(take(&old, 1, 100_000, 1_000));
    // This one is full again in half a minute.
    assert!(take(&old, 2, 300, 1_000));

    let new = store();
    let file = saved(&old, 1_000);
    let loaded = new.load(&mut Cursor::new(&file), Timestamp::from_secs(1_001));
    assert_eq!(loaded.unwrap().counters, 1);
    assert!(take(&new, 1, 10, 1_001));
    assert!(!take(&new, 1, 1, 1_001), "its burst is used");
    // Its next save has it as well.
    let file = saved(&new, 1_001);
    let again = store().load(&mut Cursor::new(&file), Timestamp::from_secs(1_002));
    assert_eq!(again.unwrap().counters, 1);
}

#[test]
fn counters_that_expired_meanwhile_are_left_out() {
    let (old, _) = filled();
    let file = saved(&old, 1_000);
    let new = store();
    let loaded = new
        .load(&mut Cursor::new(&file), Timestamp::from_secs(20_000))
        .unwrap();
    assert_eq!((loaded.counters, loaded.expired), (0, 8));
    assert_eq!(new.stats().counters, 0);
    assert_eq!(new.stats().heap_bytes, 0);
    assert_eq!(saved(&old, 20_000).len(), saved(&store(), 20_000).len());
}

#[test]
fn a_smaller_store_takes_what_it_has_room_for() {
    let hour = limit(Algorithm::FixedWindow, 10, 3_600);
    let old = MemoryStore::new(MemoryConfig {
        memory_limit: 4 << 20,
        max_share_percent: 100,
    })
    .unwrap();
    for identity in 0..40_000 {
        assert!(decide(&old, &[step(&hour, identity)], 1_000).allowed);
    }
    let file = saved(&old, 1_000);
    let new = store();
    let loaded = new
        .load(&mut Cursor::new(&file), Timestamp::from_secs(1_000))
        .unwrap();
    assert_eq!(loaded.counters, new.stats().counters);
    assert_eq!(loaded.counters + loaded.dropped, 40_000);
    assert!(loaded.counters > new.stats().capacity * 9 / 10);
}

#[test]
fn a_damaged_file_is_refused_and_nothing_is_loaded() {
    let (old, _) = filled();
    let one = limit(Algorithm::FixedWindow, 1, 3_600);
    take_once(&old, &[step(&one, 90), step(&one, 91)]);
    let file = saved(&old, 1_000);
    let load = |file: &[u8]| {
        let new = store();
        let result = new.load(&mut Cursor::new(file), Timestamp::from_secs(1_000));
        assert_eq!((new.stats().counters, new.stats().once_records), (0, 0));
        result.unwrap_err()
    };
    for len in 0..file.len() {
        let error = load(&file[..len]);
        let early = matches!(
            error,
            StateFileError::Truncated | StateFileError::NotAStateFile
        );
        assert!(early, "{len}: {error}");
    }
    for byte in 0..file.len() {
        let mut damaged = file.clone();
        damaged[byte] ^= 0x10;
        load(&damaged);
    }
    let mut longer = file.clone();
    longer.push(0);
    assert!(matches!(load(&longer), StateFileError::Corrupt));
    let mut newer = file;
    for other in [1, 5] {
        newer[8] = other;
        assert!(
            matches!(load(&newer), StateFileError::Version(it) if it.found == u32::from(other))
        );
    }
    assert!(matches!(
        load(b"domain: api"),
        StateFileError::NotAStateFile
    ));
}

#[test]
fn an_end_of_a_list_that_tells_of_entries_after_the_last_is_refused() {
    let (old, _) = filled();
    let file = saved(&old, 1_000);
    // The end of no records: no entries, no bytes, their sum, a checksum.
    let end = file.len() - 24;
    for at in [end, end + 8] {
        let mut other = file.clone();
        other[at] = 1;
        let sum = checksum(&other[end..end + 16]);
        other[end + 16..].copy_from_slice(&sum.to_le_bytes());
        let loaded = store().load(&mut Cursor::new(&other), Timestamp::from_secs(1_000));
        assert!(matches!(loaded, Err(StateFileError::Corrupt)), "{loaded:?}");
    }
}

/// The checksums are right, and the sum as well.
#[test]
fn a_block_with_more_than_its_entries_is_refused() {
    let (old, _) = filled();
    let mut file = saved(&old, 1_000);
    let block = FIXED_BYTES + b"the seed".len() + 8;
    // The last 48 bytes are the end of the counters, and that of no records.
    let end = file.len() - 48;
    for (from, at, sum_at) in [(block, block, end - 8), (end, end + 8, end + 16)] {
        file[at] -= 1;
        let sum = checksum(&file[from..sum_at]);
        file[sum_at..sum_at + 8].copy_from_slice(&sum.to_le_bytes());
    }
    let loaded = store().load(&mut Cursor::new(&file), Timestamp::from_secs(1_000));
    assert!(matches!(loaded, Err(StateFileError::Corrupt)), "{loaded:?}");
}

/// The words of a state that are in the file are told anew each time.
#[test]
fn a_loaded_counter_that_is_given_back_is_saved_again() {
    let ten = limit(Algorithm::FixedWindow, 10, 3_600);
    let mut store = store();
    for hits in [1, -1, 2] {
        let step = Step {
            hits,
            ..step(&ten, 1)
        };
        assert!(decide(&store, &[step], 1_000).allowed);
        let file = saved(&store, 1_000);
        store = super::store();
        store
            .load(&mut Cursor::new(&file), Timestamp::from_secs(1_000))
            .unwrap();
    }
    let eight = Step {
        hits: 8,
        ..step(&ten, 1)
    };
    assert!(decide(&store, &[eight], 1_000).allowed);
    assert!(!decide(&store, &[step(&ten, 1)], 1_000).allowed);
}

#[test]
fn the_longest_header_is_loaded() {
    let now = Timestamp::from_secs(1_000);
    let header = vec![7; HEADER_BYTES_MAX];
    let mut file = Vec::new();
    store().save(&mut file, &header, now).unwrap();
    let loaded = store().load(&mut Cursor::new(&file), now).unwrap();
    assert_eq!(loaded.header, header);
}

#[test]
fn a_file_is_replaced_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let (old, _) = filled();
    let now = Timestamp::from_secs(1_000);
    for _ in 0..2 {
        old.save_file(&path, b"", now).unwrap();
        assert_eq!(store().load_file(&path, now).unwrap().counters, 8);
    }
    // A leftover of a crash does no harm.
    std::fs::write(folder.path().join("state.tmp"), b"half").unwrap();
    let whole = std::fs::read(&path).unwrap();
    let too_long = vec![0; HEADER_BYTES_MAX + 1];
    assert!(old.save_file(&path, &too_long, now).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), whole);
    old.save_file(&path, b"", now).unwrap();
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(names.len(), 1);
    assert!(matches!(
        store().load_file(&folder.path().join("other"), now),
        Err(StateFileError::Io(_))
    ));
}

/// Counters in a file under names that now belong to other limits.
#[test]
fn a_counter_of_another_limit_is_held_to_the_new_one() {
    let (old, counters) = filled();
    let file = saved(&old, 1_000);
    for algorithm in Algorithm::ALL {
        let new = store();
        new.load(&mut Cursor::new(&file), Timestamp::from_secs(1_001))
            .unwrap();
        let other = limit(algorithm, 10, 60);
        for (_, identity) in &counters {
            let admitted =
                (0..50).filter(|_| decide(&new, &[step(&other, *identity)], 1_001).allowed);
            assert!(admitted.count() <= 10, "{}", algorithm.name());
        }
        assert_eq!(new.stats().counters, 8);
        new.clear();
        assert_eq!(new.stats().heap_bytes, 0);
    }
}

#[test]
fn decisions_go_on_while_the_store_is_saved() {
    let store = store();
    let hour = limit(Algorithm::FixedWindow, 1_000_000, 3_600);
    let decisions = 20_000;
    std::thread::scope(|scope| {
        let deciding = scope.spawn(|| {
            for decision in 0..decisions {
                assert!(decide(&store, &[step(&hour, decision % 500)], 1_000).allowed);
            }
        });
        while !deciding.is_finished() {
            let file = saved(&store, 1_000);
            let copy = super::store();
            let loaded = copy.load(&mut Cursor::new(&file), Timestamp::from_secs(1_000));
            assert!(loaded.unwrap().counters <= 500);
        }
    });
    let copy = super::store();
    let file = saved(&store, 1_000);
    copy.load(&mut Cursor::new(&file), Timestamp::from_secs(1_000))
        .unwrap();
    let used: u64 = (0..500)
        .map(|identity| {
            let peek = Step {
                hits: 0,
                ..step(&hour, identity)
            };
            match decide(&copy, &[peek], 1_000).outcomes[0] {
                crate::StepOutcome::Counted(outcome) => 1_000_000 - outcome.remaining,
                _ => 0,
            }
        })
        .sum();
    assert_eq!(used, decisions);
}

#[test]
fn a_file_from_the_future_is_refused_whole() {
    let old = store();
    let hour = limit(Algorithm::FixedWindow, 10, 3_600);
    assert!(decide(&old, &[step(&hour, 1)], 100_000).allowed);
    let file = saved(&old, 100_000);
    let new = store();
    let refused = new.load(&mut Cursor::new(&file), Timestamp::from_secs(96_399));
    assert!(
        matches!(refused, Err(StateFileError::FromTheFuture(3_601))),
        "{refused:?}"
    );
    assert_eq!(new.stats().counters, 0);
    for secs in [96_400, 99_995] {
        let soon = new.load(&mut Cursor::new(&file), Timestamp::from_secs(secs));
        let loaded = soon.expect("a clock may have been set back");
        assert_eq!(
            (loaded.counters, loaded.saved_at),
            (1, Timestamp::from_secs(100_000))
        );
    }
}

/// A process of its own has a folder of its own.
#[cfg(unix)]
#[test]
fn a_file_is_saved_in_the_present_folder() {
    use super::{in_a_child, is_child};
    if !is_child() {
        let folder = tempfile::tempdir().unwrap();
        let name = "state_file::a_file_is_saved_in_the_present_folder";
        return in_a_child(name, &format!("cd '{}'", folder.path().display()));
    }
    let (path, now) = (std::path::Path::new("state"), Timestamp::from_secs(1_000));
    filled().0.save_file(path, b"", now).unwrap();
    assert_eq!(store().load_file(path, now).unwrap().counters, 8);
}

/// It is not that there is a file.
#[test]
fn a_folder_in_the_way_is_told_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("state.tmp")).unwrap();
    let path = folder.path().join("state");
    let refused = store().save_file(&path, b"", Timestamp::from_secs(1_000));
    let kind = refused.unwrap_err().kind();
    assert_ne!(kind, std::io::ErrorKind::AlreadyExists);
}

/// The sizes of what is written.
#[derive(Default)]
struct Writes(Vec<usize>);

impl std::io::Write for Writes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(bytes.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Neither is all of a large store copied first, nor a few counters written at a time.
#[test]
fn counters_are_written_by_the_mebibyte() {
    let hour = limit(Algorithm::FixedWindow, 10, 3_600);
    let store = MemoryStore::new(MemoryConfig {
        memory_limit: 8 << 20,
        max_share_percent: 100,
    })
    .unwrap();
    for identity in 0..80_000 {
        assert!(decide(&store, &[step(&hour, identity)], 1_000).allowed);
    }
    let mut writes = Writes::default();
    let now = Timestamp::from_secs(1_000);
    let saved = store.save(&mut writes, b"", now).unwrap();
    assert!(saved.bytes > 2 << 20, "{saved:?}");
    // The header, whole blocks and one that is not, and the two ends.
    let [_, blocks @ .., last, _, _] = writes.0.as_slice() else {
        panic!("{writes:?}", writes = writes.0);
    };
    let is_whole = |bytes: &usize| (1 << 20..1 << 21).contains(bytes);
    assert!(
        blocks.len() > 1 && blocks.iter().all(is_whole),
        "{blocks:?}"
    );
    assert!(*last < 1 << 21, "{last}");
}

/// A flood of one rule takes its share of the memory, and no more of it after each restart.
#[test]
fn loaded_counters_count_towards_the_share_of_their_rule() {
    let config = MemoryConfig {
        memory_limit: 1 << 20,
        max_share_percent: 50,
    };
    let made = || MemoryStore::new(config).unwrap();
    let daily = limit(Algorithm::FixedWindow, 1, 86_400);
    let of = |rule: u16, identity: u64| Step {
        rule: RuleSlot(rule),
        ..step(&daily, identity)
    };
    let flood = |store: &MemoryStore, identities: std::ops::Range<u64>| {
        for identity in identities {
            decide(store, &[of(1, identity)], 1_000);
        }
    };
    let places = made().stats().capacity;
    let old = made();
    flood(&old, 0..2 * places);
    let file = saved(&old, 1_000);
    for (version, is_bounded) in [(4, true), (3, false)] {
        let new = made();
        let file = of_version(version, file.clone());
        let now = Timestamp::from_secs(1_001);
        let loaded = new.load(&mut Cursor::new(&file), now).unwrap();
        assert!(loaded.counters > places / 3, "{loaded:?} of {places}");
        flood(&new, 3 * places..5 * places);
        let held = new.stats().counters;
        assert_eq!(held <= places / 2, is_bounded, "{held} of {places}");
    }
}
