//! Globs for the names of nested ranges: `step*`, `train/step*`.

use cutape_format::MarkedRange;

/// The numbers of the ranges whose name matches, alone or with names of the ranges around it.
///
/// A range continues with what matched around it. Its path of names, matched from each of its names
/// on, would take cubic time where a program does not end its ranges, which then nest.
pub(super) fn matching(glob: &str, ranges: &[MarkedRange]) -> Vec<usize> {
    let glob = glob.as_bytes();
    let mut found = Vec::new();
    // After the path of each range.
    let mut all: Vec<Places> = Vec::with_capacity(ranges.len());
    for (number, range) in ranges.iter().enumerate() {
        let name = range.name.as_bytes();
        let around = range.parent.and_then(|parent| all.get(parent));
        let mut places = match around {
            Some(around) => around.clone().after(glob, b"/"),
            None => Places(vec![false; glob.len() + 1]),
        };
        places.begin(glob);
        let own = places.clone().after(glob, name);
        if own.0.last() == Some(&true) {
            found.push(number);
        }
        // Ranges inside may begin to match after a `/` in this name, which itself does not.
        let Some(slash) = name.iter().rposition(|byte| *byte == b'/') else {
            all.push(own);
            continue;
        };
        for part in name[..=slash].split_inclusive(|byte| *byte == b'/') {
            places = places.after(glob, part);
            places.begin(glob);
        }
        all.push(places.after(glob, &name[slash + 1..]));
    }
    found
}

/// The places in a glob up to which it matches the text so far; the last one is its end.
#[derive(Clone)]
struct Places(Vec<bool>);

impl Places {
    /// The text may begin here, too.
    fn begin(&mut self, glob: &[u8]) {
        self.0[0] = true;
        self.pass_stars(glob);
    }

    /// A star may match nothing.
    fn pass_stars(&mut self, glob: &[u8]) {
        for (at, byte) in glob.iter().enumerate() {
            self.0[at + 1] |= self.0[at] && *byte == b'*';
        }
    }

    /// The places after more text.
    fn after(mut self, glob: &[u8], text: &[u8]) -> Self {
        for byte in text {
            for at in (0..=glob.len()).rev() {
                let stays = self.0[at] && glob.get(at) == Some(&b'*');
                let advances = at.checked_sub(1).is_some_and(|before| {
                    let expected = glob[before];
                    self.0[before] && (expected == b'?' || expected != b'*' && expected == *byte)
                });
                self.0[at] = stays || advances;
            }
            self.pass_stars(glob);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(names: &[(&str, Option<usize>)]) -> Vec<MarkedRange> {
        let range = |(name, parent): &(&str, Option<usize>)| MarkedRange {
            name: (*name).to_owned(),
            domain: String::new(),
            thread: None,
            begin: 0,
            end: None,
            parent: *parent,
            ended_by: None,
        };
        names.iter().map(range).collect()
    }

    #[test]
    fn names_match_alone_or_with_those_around() {
        let all = ranges(&[
            ("train", None),
            ("step 0", Some(0)),
            ("io/load", Some(1)),
            ("copy", Some(2)),
            ("step 1", None),
            ("*", Some(4)),
            ("", Some(4)),
        ]);
        for (glob, expected) in [
            ("train", &[0][..]),
            ("step*", &[1, 2, 3, 4, 5, 6]),
            ("step ?", &[1, 4]),
            ("step 0", &[1]),
            ("train/step 0", &[1]),
            ("rain/step 0", &[]),
            ("train/*", &[1, 2, 3]),
            ("io/load", &[2]),
            // Its name is `io/load`, but the path of the range inside has `load`.
            ("load", &[]),
            ("load/copy", &[3]),
            ("io/load/copy", &[3]),
            ("oad/copy", &[]),
            ("*/copy", &[3]),
            ("*0/*copy", &[3]),
            ("step 1/*", &[5, 6]),
            ("step 1/?", &[5]),
            ("step 1/", &[6]),
            ("*", &[0, 1, 2, 3, 4, 5, 6]),
            ("**1", &[4]),
            ("train/step 0/io/load/copy", &[3]),
            ("train/step 0/io/load/copy?", &[]),
        ] {
            assert_eq!(matching(glob, &all), expected, "{glob}");
        }
    }

    #[test]
    fn the_time_is_linear_in_the_depth() {
        let deep: Vec<_> = (0..20_000_usize)
            .map(|at| ("step", at.checked_sub(1)))
            .collect();
        assert!(matching("*x", &ranges(&deep)).is_empty());
        assert_eq!(matching("step/*", &ranges(&deep)).len(), deep.len() - 1);
    }
}
