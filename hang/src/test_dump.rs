//! A small core dump of the GPU, for tests.

/// A dump with one device, one kernel, one block of it and one warp of that.
#[derive(Clone, Debug)]
pub struct TestDump {
    /// The exception of the multiprocessor; 0 for none.
    pub exception: u32,
    /// The symbol of the kernel.
    pub kernel: String,
    /// By number: `threadIdx.x`, and whether the thread was active.
    pub lanes: Vec<(u32, u32, bool)>,
}

/// Where the kernel's code is.
const ENTRY: u64 = 0x7f00_0000_1000;
/// `SHT_LOUSER`.
const FIRST_TYPE: u32 = 0x8000_0000;

/// A section: name, type, link, info, address, bytes of a row, content.
type Section<'n> = (&'n str, u32, u32, u32, u64, u64, Vec<u8>);

impl TestDump {
    /// A warp of which two threads out of three had an illegal address.
    pub fn fault() -> Self {
        Self {
            exception: 14,
            kernel: "fill".to_owned(),
            lanes: vec![(0, 32, false), (1, 33, true), (5, 37, true)],
        }
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        let error_at = ENTRY + 0x50;
        let device = row(104, &[(24, 3)], &[]);
        let grid_shape = [(72, 4), (76, 2), (80, 1), (84, 64), (88, 1), (92, 1)];
        let grid = row(136, &grid_shape, &[(0, 7), (24, ENTRY), (32, 0x99)]);
        let multiprocessor = row(40, &[(8, self.exception), (12, 1)], &[(16, error_at)]);
        let block = row(56, &[(8, 2), (12, 1)], &[(0, 7)]);
        let mask = |of: &dyn Fn(bool) -> bool| {
            let lanes = self.lanes.iter().filter(|(_, _, active)| of(*active));
            lanes.fold(0, |mask, (lane, ..)| mask | 1 << lane)
        };
        let (valid, active) = (mask(&|_| true), mask(&|active| active));
        let warp = row(64, &[(12, valid), (16, active), (24, 1)], &[(0, error_at)]);
        let lanes = self
            .lanes
            .iter()
            .flat_map(|&(lane, x, _)| row(56, &[(16, lane), (20, x)], &[(0, ENTRY + 0x60)]));
        let image = elf(
            2,
            &[(
                &*format!(".text.{}", self.kernel),
                1,
                0,
                0,
                ENTRY,
                0,
                vec![0; 256],
            )],
        );
        let table = |name, kind, link, info, bytes, content| {
            (name, FIRST_TYPE + kind, link, info, 0, bytes, content)
        };
        let mut sections: Vec<Section<'_>> = vec![
            table(".cudbg.devtbl", 9, 0, 0, 104, device),
            table(".cudbg.gridtbl.dev0", 12, 1, 0, 136, grid),
            table(".cudbg.smtbl.dev0", 11, 1, 0, 40, multiprocessor),
            table(".cudbg.ctatbl.dev0.sm0", 13, 3, 0, 56, block),
            table(".cudbg.relfimg.dev0.ctx0", 7, 0, 0, 0, image),
        ];
        if !self.lanes.is_empty() {
            sections.push(table(".cudbg.wptbl.dev0.sm0.cta0", 14, 4, 0, 64, warp));
            sections.push(table(
                ".cudbg.lntbl.dev0.sm0.cta0.wp0",
                15,
                6,
                0,
                56,
                lanes.collect(),
            ));
        }
        elf(4, &sections)
    }
}

/// A row of that length with numbers of 4 and of 8 bytes at offsets.
fn row(length: usize, words: &[(usize, u32)], long: &[(usize, u64)]) -> Vec<u8> {
    let mut row = vec![0; length];
    let words = words
        .iter()
        .map(|(at, word)| (*at, word.to_le_bytes().to_vec()));
    let long = long
        .iter()
        .map(|(at, word)| (*at, word.to_le_bytes().to_vec()));
    for (at, bytes) in words.chain(long) {
        row.splice(at..at + bytes.len(), bytes);
    }
    row
}

/// A 64-bit ELF file of that type for CUDA. Sections are numbered from 1.
fn elf(file_type: u16, sections: &[Section<'_>]) -> Vec<u8> {
    let mut names = vec![0];
    let mut content = vec![0; 64];
    let mut headers = vec![0; 64];
    let mut add = |section: &[u32; 2], (link, info): (u32, u32), long: [u64; 4]| {
        let [address, at, length, row] = long;
        headers.extend(section.iter().flat_map(|word| word.to_le_bytes()));
        headers.extend(
            [0, address, at, length]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
        headers.extend([link, info].iter().flat_map(|word| word.to_le_bytes()));
        headers.extend([1, row].iter().flat_map(|word: &u64| word.to_le_bytes()));
    };
    for (name, kind, link, info, address, row, bytes) in sections {
        let place = [*address, content.len() as u64, bytes.len() as u64, *row];
        add(&[names.len() as u32, *kind], (*link, *info), place);
        names.extend(name.bytes().chain([0]));
        content.extend(bytes);
    }
    // SHT_STRTAB
    let place = [0, content.len() as u64, names.len() as u64, 0];
    add(&[0, 3], (0, 0), place);
    content.extend(&names);
    let count = sections.len() as u16 + 2;
    let table = content.len() as u64;
    content.extend(headers);
    let mut head = b"\x7fELF\x02\x01\x01\x33\x07".to_vec();
    head.resize(16, 0);
    for half in [file_type, 190] {
        head.extend(half.to_le_bytes());
    }
    head.extend(1_u32.to_le_bytes());
    for long in [0, 0, table] {
        head.extend(long.to_le_bytes());
    }
    head.extend(0_u32.to_le_bytes());
    for half in [64, 0, 0, 64, count, count - 1] {
        head.extend(half.to_le_bytes());
    }
    content.splice(..64, head);
    content
}
