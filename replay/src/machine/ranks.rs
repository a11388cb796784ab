//! Devices of ranks that are replayed together: which device here each of them works on, and which
//! of these have to access each other's memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::machine::check::reason;
use crate::machine::devices::{Device, Devices, list};
use crate::report::Difference;

/// The devices of all ranks. The same for each of them, so that all come to the same map.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankDevices {
    /// Those with contexts, by rank and ordinal.
    pub(crate) used: Vec<RankDevice>,
    pub(crate) exchanges: Vec<DeviceExchange>,
}

/// A device on which a rank has contexts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RankDevice {
    /// Position of the rank.
    pub(crate) rank: usize,
    /// What messages call it.
    pub(crate) label: String,
    /// The ordinal in its trace.
    pub(crate) ordinal: i32,
    pub(crate) device: Device,
    /// The device here that the user has chosen.
    pub(crate) wanted: Option<u32>,
}

/// A rank imports memory of another one's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeviceExchange {
    /// The rank that imports, and its device.
    pub(crate) user: (usize, i32),
    /// The import.
    pub(crate) call: u64,
    /// The rank that exported, and the device with the memory.
    pub(crate) owner: (usize, i32),
}

/// Whether a device here can access the memory of another one.
pub(crate) type AreHerePeers<'a> = &'a dyn Fn(u32, u32) -> bool;

impl RankDevices {
    /// The device here of each used one: the wanted one, else one that no rank wants if there are
    /// enough. Recorded devices that differ stay on different ones unless the user wants otherwise.
    fn places(&self, here: &[Device]) -> Result<Vec<Option<u32>>, Error> {
        let wanted: BTreeSet<u32> = self.used.iter().filter_map(|used| used.wanted).collect();
        let mut others: Vec<Device> = Vec::new();
        let free = self.used.iter().filter(|used| used.wanted.is_none());
        for used in free {
            if !others.iter().any(|known| is_same(known, &used.device)) {
                others.push(used.device.clone());
            }
        }
        let every = (0..others.len()).filter_map(|ordinal| i32::try_from(ordinal).ok());
        let every: BTreeSet<i32> = every.collect();
        let beside = |wanted: &BTreeSet<u32>| {
            Devices::matched_beside((others.clone(), here.to_vec()), &every, &[], wanted)
        };
        let mut devices = beside(&wanted)?;
        if every.iter().any(|&other| devices.pair(other).is_none()) {
            devices = beside(&BTreeSet::new())?;
        }
        let place = |used: &RankDevice| match used.wanted {
            Some(wanted) => Some(wanted),
            None => {
                let at = others.iter().position(|known| is_same(known, &used.device));
                let here = devices.pair(i32::try_from(at?).ok()?).is_some();
                let ordinal = devices.ordinal(i32::try_from(at?).ok()?).filter(|_| here);
                u32::try_from(ordinal?).ok()
            }
        };
        Ok(self.used.iter().map(place).collect())
    }

    /// Matches the devices of a rank. What others have contexts of is where they have it.
    ///
    /// # Errors
    ///
    /// As [`Devices::matched`], and if this machine has too few devices.
    pub(crate) fn matched(
        &self,
        rank: usize,
        (recorded, here): (Vec<Device>, Vec<Device>),
        used: &BTreeSet<i32>,
        wanted: &[(u32, u32)],
    ) -> Result<Devices, Error> {
        let places = self.places(&here)?;
        let mut chosen = wanted.to_vec();
        // Its own first: if the user puts ranks on one device, that of another one has to give way.
        let of = |is_own: bool| {
            let find = move |device: &Device| {
                let is_it = |used: &RankDevice| {
                    (!is_own || used.rank == rank) && is_same(&used.device, device)
                };
                self.used.iter().position(is_it)
            };
            let recorded = recorded.iter().zip(0_u32..);
            recorded.filter_map(move |(device, ordinal)| Some((find(device)?, ordinal)))
        };
        for (known, ordinal) in of(true).chain(of(false)) {
            if chosen.iter().any(|pair| pair.0 == ordinal) {
                continue;
            }
            let is_used = i32::try_from(ordinal).is_ok_and(|known| used.contains(&known));
            match places.get(known).copied().flatten() {
                Some(place) => {
                    let is_free = chosen.iter().all(|pair| pair.1 != place);
                    chosen.extend(is_free.then_some((ordinal, place)));
                }
                None if is_used => {
                    return Err(Error::Devices {
                        problem: format!(
                            "the ranks work on {} devices and this machine has {}: none is left \
                             for device {ordinal} of this rank",
                            self.count(),
                            here.len()
                        ),
                        recorded: list(&recorded),
                        here: list(&here),
                    });
                }
                None => {}
            }
        }
        Devices::matched(recorded, here, used, &chosen)
    }

    /// How many recorded devices differ.
    fn count(&self) -> usize {
        let mut all: Vec<&Device> = Vec::new();
        for used in &self.used {
            if !all.iter().any(|known| is_same(known, &used.device)) {
                all.push(&used.device);
            }
        }
        all.len()
    }

    /// Pairs of devices that would have to access each other's memory and cannot, or that would be
    /// one device: a reason for each pair, and the rank that imports.
    pub(crate) fn misfits(
        &self,
        here: &[Device],
        are_peers: AreHerePeers<'_>,
    ) -> Result<Vec<(usize, Difference)>, Error> {
        let places = self.places(here)?;
        let find = |(rank, ordinal): (usize, i32)| {
            let is_it = |used: &RankDevice| (used.rank, used.ordinal) == (rank, ordinal);
            let at = self.used.iter().position(is_it)?;
            Some((self.used.get(at)?, places.get(at).copied().flatten()?))
        };
        let mut found = Vec::new();
        let mut seen = BTreeSet::new();
        for exchange in &self.exchanges {
            let (Some((user, at)), Some((owner, peer))) =
                (find(exchange.user), find(exchange.owner))
            else {
                continue;
            };
            if is_same(&user.device, &owner.device) || (at != peer && are_peers(at, peer)) {
                continue;
            }
            if !seen.insert((at.min(peer), at.max(peer))) {
                continue;
            }
            let recorded = format!(
                "{} (device {}) uses memory of {} (device {}) from call {} on",
                user.label, user.ordinal, owner.label, owner.ordinal, exchange.call
            );
            let (here, why) = match at == peer {
                true => (
                    format!("both are device {at}"),
                    "give them different ones with --devices RANK:RECORDED=HERE",
                ),
                false => (
                    format!("device {at} cannot access the memory of device {peer}"),
                    "cuDeviceCanAccessPeer says so; choose devices that can with --devices \
                     RANK:RECORDED=HERE, or replay each rank alone with --rank",
                ),
            };
            found.push((user.rank, reason("peer access", recorded, here, why)));
        }
        Ok(found)
    }
}

/// True if both are known to be the same device.
fn is_same(one: &Device, other: &Device) -> bool {
    one.uuid.is_some() && one.uuid == other.uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(uuid: &str) -> Device {
        Device {
            uuid: Some(uuid.to_owned()),
            name: Some("x".to_owned()),
            capability: Some((9, 0)),
            memory: None,
        }
    }

    /// `a` for a device with that uuid, `a=1` if the user wants device 1 for it; each rank saw only
    /// its own device, as its first.
    fn ranks(text: &str) -> RankDevices {
        let used = text.split_whitespace().enumerate().map(|(rank, word)| {
            let (uuid, wanted) = match word.split_once('=') {
                Some((uuid, wanted)) => (uuid, wanted.parse().ok()),
                None => (word, None),
            };
            RankDevice {
                rank,
                label: format!("rank {rank}"),
                ordinal: 0,
                device: device(uuid),
                wanted,
            }
        });
        RankDevices {
            used: used.collect(),
            exchanges: Vec::new(),
        }
    }

    fn here(text: &str) -> Vec<Device> {
        text.split_whitespace().map(device).collect()
    }

    #[test]
    fn ranks_on_different_devices_stay_on_different_ones() {
        for (recorded, there, expected) in [
            ("a b", "c d", &[Some(0), Some(1)][..]),
            ("a b", "b a", &[Some(1), Some(0)]),
            ("a a b", "c d", &[Some(0), Some(0), Some(1)]),
            ("a b=0", "c d", &[Some(1), Some(0)]),
            ("a=1 b", "a b", &[Some(1), Some(0)]),
            ("a=0 b=0", "c d", &[Some(0), Some(0)]),
            ("a=1 a", "c d", &[Some(1), Some(0)]),
            ("a b", "c", &[Some(0), None]),
            // The user has put the second rank there; whether that works depends on what they
            // exchange.
            ("a b=0", "c", &[Some(0), Some(0)]),
            ("a b=0 a b", "c d", &[Some(0), Some(0), Some(0), Some(1)]),
        ] {
            let ranks = ranks(recorded);
            let places = ranks.places(&here(there)).unwrap();
            assert_eq!(places, expected, "{recorded} here {there}");
            for used in &ranks.used {
                let devices = (vec![used.device.clone()], here(there));
                let own: Vec<(u32, u32)> = used.wanted.iter().map(|&to| (0, to)).collect();
                let matched = ranks.matched(used.rank, devices, &BTreeSet::from([0]), &own);
                match expected[used.rank] {
                    Some(place) => assert_eq!(
                        matched.unwrap().ordinal(0),
                        i32::try_from(place).ok(),
                        "{recorded} here {there}"
                    ),
                    None => {
                        let error = matched.unwrap_err().to_string();
                        let why = "the ranks work on 2 devices and this machine has 1: none is \
                                   left for device 0 of this rank";
                        assert!(error.contains(why), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn devices_of_others_are_where_they_have_them() {
        // Both saw both devices; the second rank works on the second one, which the user moves.
        let mut ranks = ranks("a b=0");
        ranks.used[1].ordinal = 1;
        let devices = || (here("a b"), here("a b"));
        let own = |rank, wanted: &[(u32, u32)]| {
            let matched = ranks.matched(rank, devices(), &BTreeSet::from([rank as i32]), wanted);
            let matched = matched.unwrap();
            [0, 1].map(|ordinal| matched.ordinal(ordinal))
        };
        assert_eq!(own(0, &[]), [Some(1), Some(0)]);
        assert_eq!(own(1, &[(1, 0)]), [Some(1), Some(0)]);
        // The user puts the first rank where the second one is: that one stays there.
        let mut ranks = self::ranks("a=1 a b");
        ranks.used[2].ordinal = 1;
        let matched = ranks.matched(2, devices(), &BTreeSet::from([1]), &[]);
        assert_eq!(matched.unwrap().ordinal(1), Some(1));
    }

    #[test]
    fn pairs_without_access_are_refused_once() {
        let exchange = |user, owner, call| DeviceExchange {
            user: (user, 0),
            owner: (owner, 0),
            call,
        };
        type Row = (
            &'static str,
            Vec<DeviceExchange>,
            fn(u32, u32) -> bool,
            &'static [&'static str],
        );
        let rows: &[Row] = &[
            ("a b", vec![exchange(0, 1, 5)], |_, _| true, &[]),
            (
                "a b",
                vec![exchange(0, 1, 5), exchange(1, 0, 7)],
                |_, _| false,
                &[
                    "rank 0 (device 0) uses memory of rank 1 (device 0) from call 5 on, here device \
                   0 cannot access the memory of device 1",
                ],
            ),
            (
                "a=1 b=1",
                vec![exchange(1, 0, 7)],
                |_, _| true,
                &[
                    "rank 1 (device 0) uses memory of rank 0 (device 0) from call 7 on, here both \
                   are device 1",
                ],
            ),
            // One device, as recorded; and two devices that exchange nothing.
            ("a a", vec![exchange(0, 1, 5)], |_, _| false, &[]),
            ("a=1 b=1", vec![], |_, _| false, &[]),
        ];
        for (recorded, exchanges, are_peers, expected) in rows {
            let mut ranks = ranks(recorded);
            ranks.exchanges.clone_from(exchanges);
            let found = ranks.misfits(&here("c d"), are_peers).unwrap();
            let texts: Vec<String> = found.iter().map(|found| found.1.text()).collect();
            assert_eq!(texts.len(), expected.len(), "{recorded} {texts:?}");
            for (text, expected) in texts.iter().zip(*expected) {
                assert!(text.contains(expected), "{text}");
            }
            assert!(found.iter().all(|found| found.1.fatal));
        }
    }
}
