//! Which device of this machine replaces which recorded one.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// What is known of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub name: Option<String>,
    /// 32 hexadecimal digits.
    pub uuid: Option<String>,
    /// Compute capability.
    pub capability: Option<(u16, u16)>,
    /// Bytes of memory.
    pub memory: Option<u64>,
}

impl Device {
    /// `NVIDIA H200, compute capability 9.0`.
    pub(crate) fn describe(&self) -> String {
        let name = self.name.as_deref().unwrap_or("a device without a name");
        match self.capability {
            Some((major, minor)) => format!("{name}, compute capability {major}.{minor}"),
            None => name.to_owned(),
        }
    }
}

/// The recorded devices, those of this machine, and which of these replace which of those.
///
/// Before both sides are known, every ordinal maps to itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Devices {
    recorded: Vec<Device>,
    here: Vec<Device>,
    /// By recorded ordinal.
    map: Vec<Option<usize>>,
}

impl Devices {
    /// Matches devices: as `wanted` says (recorded, here), then those that the trace uses, then the
    /// others; each by uuid, by name and compute capability, by compute capability, and at last in
    /// order, the same ordinal first.
    ///
    /// # Errors
    ///
    /// [`Error::Devices`] if `wanted` names a device that is not there, or one twice.
    pub(crate) fn matched(
        recorded: Vec<Device>,
        here: Vec<Device>,
        used: &BTreeSet<i32>,
        wanted: &[(u32, u32)],
    ) -> Result<Self, Error> {
        Self::matched_beside((recorded, here), used, wanted, &BTreeSet::new())
    }

    /// As [`Self::matched`], where others take some devices of this machine.
    pub(crate) fn matched_beside(
        (recorded, here): (Vec<Device>, Vec<Device>),
        used: &BTreeSet<i32>,
        wanted: &[(u32, u32)],
        others: &BTreeSet<u32>,
    ) -> Result<Self, Error> {
        let mut map: Vec<Option<usize>> = vec![None; recorded.len()];
        let is_taken = |at| u32::try_from(at).is_ok_and(|at| others.contains(&at));
        let mut taken: Vec<bool> = (0..here.len()).map(is_taken).collect();
        for &(from, to) in wanted {
            let places = (map.get_mut(from as usize), taken.get_mut(to as usize));
            let problem = match places {
                (None, _) => format!("the trace has no device {from}"),
                (_, None) => format!("this machine has no device {to}"),
                (Some(Some(_)), _) => format!("device {from} of the trace is named twice"),
                (_, Some(true)) => format!("device {to} of this machine is named twice"),
                (Some(place), Some(taken)) => {
                    (*place, *taken) = (Some(to as usize), true);
                    continue;
                }
            };
            return Err(Error::Devices {
                problem,
                recorded: list(&recorded),
                here: list(&here),
            });
        }
        let alike: [fn(&Device, &Device) -> bool; 4] = [
            |a, b| a.uuid.is_some() && a.uuid == b.uuid,
            |a, b| a.name == b.name && a.capability == b.capability,
            |a, b| a.capability == b.capability,
            |_, _| true,
        ];
        for only_used in [true, false] {
            for alike in alike {
                for ((ordinal, device), place) in recorded.iter().enumerate().zip(&mut map) {
                    let is_used = i32::try_from(ordinal).is_ok_and(|known| used.contains(&known));
                    if place.is_some() || (only_used && !is_used) {
                        continue;
                    }
                    let is_alike = |&at: &usize| {
                        let free = taken.get(at) == Some(&false);
                        free && here.get(at).is_some_and(|here| alike(device, here))
                    };
                    *place = std::iter::once(ordinal).chain(0..here.len()).find(is_alike);
                    if let Some(taken) = place.and_then(|found| taken.get_mut(found)) {
                        *taken = true;
                    }
                }
            }
        }
        Ok(Self {
            recorded,
            here,
            map,
        })
    }

    /// What stands for a recorded ordinal; `None` for a device of the recorded machine that has no
    /// counterpart. A number that was no device there is none here either.
    pub(crate) fn ordinal(&self, recorded: i32) -> Option<i32> {
        let Ok(ordinal) = usize::try_from(recorded) else {
            return Some(recorded); // CU_DEVICE_CPU, CU_DEVICE_INVALID
        };
        let here = match self.map.get(ordinal) {
            Some(here) => (*here)?,
            None => self.here.len() + (ordinal - self.map.len()),
        };
        Some(i32::try_from(here).unwrap_or(i32::MAX))
    }

    /// A recorded device and its replacement, if both are known.
    pub(crate) fn pair(&self, recorded: i32) -> Option<(&Device, &Device)> {
        let ordinal = usize::try_from(recorded).ok()?;
        let here = (*self.map.get(ordinal)?)?;
        Some((self.recorded.get(ordinal)?, self.here.get(here)?))
    }

    /// What is known of a recorded device.
    pub(crate) fn recorded(&self, ordinal: i32) -> Option<&Device> {
        self.recorded.get(usize::try_from(ordinal).ok()?)
    }

    /// The devices of this machine.
    pub(crate) fn here(&self) -> &[Device] {
        &self.here
    }

    /// How many devices the recorded machine had, and this one has.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.recorded.len(), self.here.len())
    }

    /// True if that ordinal is the recorded device itself, as far as the trace says.
    pub(crate) fn is_same(&self, recorded: i32) -> bool {
        match self.pair(recorded) {
            Some((there, here)) => there.uuid.is_none() || there.uuid == here.uuid,
            None => self.ordinal(recorded).is_some(),
        }
    }

    /// True if a recorded device and its replacement differ in that way.
    pub(crate) fn any(&self, differs: fn(&Device, &Device) -> bool) -> bool {
        (0..self.map.len())
            .filter_map(|ordinal| self.pair(i32::try_from(ordinal).ok()?))
            .any(|(there, here)| differs(there, here))
    }

    /// `0=1, 1=0` for devices whose ordinals differ; `None` if all are equal.
    pub(crate) fn text(&self) -> Option<String> {
        let pairs: Vec<String> = self
            .map
            .iter()
            .enumerate()
            .filter_map(|(recorded, here)| here.map(|here| (recorded, here)))
            .filter(|(recorded, here)| recorded != here)
            .map(|(recorded, here)| format!("{recorded}={here}"))
            .collect();
        (!pairs.is_empty()).then(|| pairs.join(","))
    }
}

/// `0: NVIDIA H200, compute capability 9.0; 1: ...`, or `none`.
pub(crate) fn list(devices: &[Device]) -> String {
    if devices.is_empty() {
        return "none".to_owned();
    }
    let lines: Vec<String> = devices
        .iter()
        .enumerate()
        .map(|(ordinal, device)| format!("{ordinal}: {}", device.describe()))
        .collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Devices by uuid, name and compute capability: `a:big:90`.
    fn devices(text: &str) -> Vec<Device> {
        text.split_whitespace()
            .map(|word| {
                let parts: Vec<&str> = word.split(':').collect();
                let number: u16 = parts[2].parse().unwrap();
                Device {
                    uuid: (parts[0] != "-").then(|| parts[0].to_owned()),
                    name: Some(parts[1].to_owned()),
                    capability: Some((number / 10, number % 10)),
                    memory: None,
                }
            })
            .collect()
    }

    #[test]
    fn devices_are_matched_by_what_they_are() {
        // (recorded, here, used, wanted, map)
        type Row = (
            &'static str,
            &'static str,
            &'static [i32],
            &'static [(u32, u32)],
            &'static [Option<usize>],
        );
        let rows: &[Row] = &[
            (
                "a:x:90 b:x:90",
                "a:x:90 b:x:90",
                &[],
                &[],
                &[Some(0), Some(1)],
            ),
            (
                "a:x:90 b:x:90",
                "b:x:90 a:x:90",
                &[],
                &[],
                &[Some(1), Some(0)],
            ),
            (
                "-:x:90 -:y:80",
                "-:y:80 -:x:90",
                &[],
                &[],
                &[Some(1), Some(0)],
            ),
            (
                "a:x:90 b:y:80",
                "c:z:80 d:x:90",
                &[],
                &[],
                &[Some(1), Some(0)],
            ),
            ("a:x:90 b:x:90", "c:x:90", &[1], &[], &[None, Some(0)]),
            ("a:x:90 b:x:90", "a:x:90", &[1], &[], &[None, Some(0)]),
            ("a:x:90 b:x:90", "c:x:90", &[], &[], &[Some(0), None]),
            ("a:x:90", "b:y:80", &[0], &[], &[Some(0)]),
            ("a:x:90", "", &[0], &[], &[None]),
            (
                "a:x:90 b:x:90",
                "a:x:90 b:x:90",
                &[0, 1],
                &[(0, 1), (1, 0)],
                &[Some(1), Some(0)],
            ),
            (
                "a:x:90 b:x:90",
                "a:x:90 b:x:90",
                &[0, 1],
                &[(0, 1)],
                &[Some(1), Some(0)],
            ),
            (
                "a:x:90 b:x:90 c:x:90",
                "d:x:90 e:x:90 f:x:90",
                &[2],
                &[],
                &[Some(0), Some(1), Some(2)],
            ),
        ];
        for (recorded, here, used, wanted, map) in rows {
            let used = used.iter().copied().collect();
            let matched =
                Devices::matched(devices(recorded), devices(here), &used, wanted).unwrap();
            assert_eq!(matched.map, *map, "{recorded} here {here}");
        }
    }

    #[test]
    fn a_map_that_names_what_is_not_there_is_refused_with_both_lists() {
        for (wanted, problem) in [
            (&[(2, 0)][..], "the trace has no device 2"),
            (&[(0, 1)], "this machine has no device 1"),
            (&[(0, 0), (0, 0)], "device 0 of the trace is named twice"),
            (&[(0, 0), (1, 0)], "device 0 of this machine is named twice"),
        ] {
            let error = Devices::matched(
                devices("a:x:90 b:y:80"),
                devices("c:z:90"),
                &BTreeSet::new(),
                wanted,
            )
            .unwrap_err()
            .to_string();
            for part in [
                problem,
                "0: x, compute capability 9.0; 1: y, compute capability 8.0",
                "0: z, compute capability 9.0",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn ordinals_that_were_no_device_stay_none() {
        let used = BTreeSet::from([1]);
        let matched =
            Devices::matched(devices("a:x:90 b:x:90"), devices("c:x:90"), &used, &[]).unwrap();
        for (recorded, here) in [
            (0, None),
            (1, Some(0)),
            (2, Some(1)),
            (7, Some(6)),
            (-1, Some(-1)),
        ] {
            assert_eq!(matched.ordinal(recorded), here, "{recorded}");
        }
        assert_eq!(matched.text().as_deref(), Some("1=0"));
        assert!(!matched.is_same(1) && !matched.is_same(0));
        assert_eq!(Devices::default().ordinal(3), Some(3));
        assert!(Devices::default().is_same(3));
    }
}
