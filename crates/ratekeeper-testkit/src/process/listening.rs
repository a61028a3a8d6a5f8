//! Tells who listens on a port, by proc(5).

use std::net::{Ipv4Addr, TcpStream};

/// Returns true if the leader of a group of processes, or one of its family, listens on that port of the loopback
/// interface.
pub(super) fn is_listening(leader: u32, port: u16) -> bool {
    // Asked first, since reading the kernel's tables takes milliseconds.
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() && is_its_own(leader, port)
}

#[cfg(target_os = "linux")]
use linux::is_its_own;

/// Only Linux tells who listens.
#[cfg(not(target_os = "linux"))]
fn is_its_own(_leader: u32, _port: u16) -> bool {
    true
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::fs::{read_dir, read_link, read_to_string};
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    /// Returns true if a process of that group, or a descendant of its leader, has a socket that listens on the port.
    pub(super) fn is_its_own(leader: u32, port: u16) -> bool {
        ["tcp", "tcp6"].into_iter().any(|table| {
            let sockets = sockets(leader, table, port);
            !sockets.is_empty() && family(leader).into_iter().any(|id| has_one(id, &sockets))
        })
    }

    /// The sockets that listen on the port, by the names that they have among a process's open files, from a table of
    /// the network namespace of the process `id`.
    fn sockets(id: u32, table: &str, port: u16) -> Vec<String> {
        let table = read_to_string(format!("/proc/{id}/net/{table}")).unwrap_or_default();
        let inodes = table.lines().filter_map(|line| listening(line, port));
        inodes.map(|inode| format!("socket:[{inode}]")).collect()
    }

    /// The inode of the socket in a line of the kernel's table, if it listens on that port where 127.0.0.1 reaches it.
    pub(super) fn listening(line: &str, port: u16) -> Option<&str> {
        const LISTEN: &str = "0A";
        let mut words = line.split_ascii_whitespace();
        let (local, state) = (words.nth(1)?, words.nth(1)?);
        let (address, number) = local.split_once(':')?;
        let is_it = state == LISTEN && u16::from_str_radix(number, 16) == Ok(port);
        (is_it && is_reached(address)?).then(|| words.nth(5))?
    }

    /// Returns true if connections to 127.0.0.1 reach that address: hexadecimal words in the byte order of the machine.
    fn is_reached(address: &str) -> Option<bool> {
        let words = (0..address.len())
            .step_by(8)
            .map(|at| address.get(at..at + 8));
        let words = words.map(|word| u32::from_str_radix(word?, 16).ok());
        let octets: Option<Vec<[u8; 4]>> = words.map(|word| Some(word?.to_ne_bytes())).collect();
        let octets = octets?.concat();
        let address = match <[u8; 16]>::try_from(octets.as_slice()) {
            Ok(octets) => Ipv6Addr::from(octets).to_canonical(),
            Err(_) => Ipv4Addr::from(<[u8; 4]>::try_from(octets.as_slice()).ok()?).into(),
        };
        Some(address.is_unspecified() || address == IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// The processes of a group and all descendants of its leader, which may have groups of their own.
    fn family(leader: u32) -> BTreeSet<u32> {
        let processes = read_dir("/proc").into_iter().flatten().flatten();
        let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let known: Vec<(u32, [u32; 2])> = ids.filter_map(|id| Some((id, kin(id)?))).collect();
        let mut family = BTreeSet::from([leader]);
        loop {
            let before = family.len();
            let related = |(_, kin): &&(u32, [u32; 2])| kin.iter().any(|id| family.contains(id));
            let found: Vec<u32> = known.iter().filter(related).map(|(id, _)| *id).collect();
            family.extend(found);
            if family.len() == before {
                return family;
            }
        }
    }

    /// The parent and the group of a process.
    fn kin(id: u32) -> Option<[u32; 2]> {
        let stat = read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name before may hold spaces and parentheses.
        let mut after = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(1);
        Some([after.next()?.parse().ok()?, after.next()?.parse().ok()?])
    }

    fn has_one(id: u32, sockets: &[String]) -> bool {
        let files = read_dir(format!("/proc/{id}/fd"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| {
            let target = read_link(file.path());
            target.is_ok_and(|target| {
                sockets
                    .iter()
                    .any(|socket| target.as_os_str() == socket.as_str())
            })
        })
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::linux::listening;

    #[test]
    fn a_line_of_the_kernel_is_read() {
        let line = |local: &str, state: &str| {
            format!(
                "   0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 1052 1 0000000047a4d396 100 0 0 10 0"
            )
        };
        // 127.0.0.1, all interfaces, and both through IPv6.
        let local = u32::from_ne_bytes([127, 0, 0, 1]);
        let mapped = u32::from_ne_bytes([0, 0, 255, 255]);
        for address in [
            format!("{local:08X}"),
            format!("{:08X}", 0),
            format!("{:032X}", 0),
            format!("{:016X}{mapped:08X}{local:08X}", 0),
        ] {
            let here = line(&format!("{address}:1F90"), "0A");
            assert_eq!(listening(&here, 8080), Some("1052"), "{here}");
            assert_eq!(listening(&here, 8081), None);
            let connected = line(&format!("{address}:1F90"), "01");
            assert_eq!(listening(&connected, 8080), None);
        }
        let elsewhere = u32::from_ne_bytes([192, 0, 2, 1]);
        assert_eq!(
            listening(&line(&format!("{elsewhere:08X}:1F90"), "0A"), 8080),
            None
        );
        assert_eq!(
            listening("  sl  local_address rem_address   st", 8080),
            None
        );
    }
}
