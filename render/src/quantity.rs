//! Numbers with units, for people.

use std::time::Duration;

/// Bytes: `96 bytes`, `4.0 KiB`, `1.5 GiB`.
pub fn bytes(number: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if number == 1 {
        return "1 byte".into();
    }
    if number < 1024 {
        return format!("{number} bytes");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    // Never shows 1024.0 of a unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    format!("{value:.1} {unit}")
}

/// Reads what people write for a time: `500ms`, `60s`, `1.5min`, `2h`; `None` for other words and 0.
pub fn parse_time(text: &str) -> Option<Duration> {
    let at = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
    let (number, unit) = text.split_at(at);
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let time = Duration::try_from_secs_f64(number * seconds).ok()?;
    (!time.is_zero()).then_some(time)
}

/// Reads what people write for bytes: `4096`, `256M`, `1.5 GiB`; units are powers of 1024.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text} is not a number of bytes such as 256M or 1GiB");
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_lowercase();
    let power = match unit
        .strip_suffix("ib")
        .or(unit.strip_suffix('b'))
        .unwrap_or(&unit)
    {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return Err(wrong()),
    };
    let bytes = number * 1024_f64.powi(power);
    match bytes < (1_u64 << 60) as f64 {
        true => Ok(bytes as u64),
        false => Err(wrong()),
    }
}

/// A time: `740 ns`, `12.3 us`, `1.50 ms`, `3.20 s`, `4 min 10 s`.
pub fn time(nanoseconds: u64) -> String {
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds} ns"),
        1_000..999_950 => format!("{:.1} us", value / 1e3),
        999_950..999_995_000 => format!("{:.2} ms", value / 1e6),
        999_995_000..120_000_000_000 => format!("{:.2} s", value / 1e9),
        _ => {
            let seconds = nanoseconds / 1_000_000_000;
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}

/// A time in milliseconds with all digits: `1.500000`.
pub fn milliseconds(nanoseconds: u64) -> String {
    format!("{}.{:06}", nanoseconds / 1_000_000, nanoseconds % 1_000_000)
}

/// A time in nanoseconds, in the unit that suits its size.
pub fn scaled(nanoseconds: f64) -> (f64, &'static str) {
    match nanoseconds {
        value if value >= 1e9 => (value / 1e9, "s"),
        value if value >= 1e6 => (value / 1e6, "ms"),
        value if value >= 1e3 => (value / 1e3, "us"),
        value => (value, "ns"),
    }
}

/// A time, or `-`.
pub fn time_or_unknown(nanoseconds: Option<u64>) -> String {
    nanoseconds.map_or_else(|| "-".into(), time)
}

/// A count with its noun: `1 call`, `12,345 calls`.
pub fn count(number: u64, noun: &str) -> String {
    format!(
        "{} {noun}{}",
        grouped(number),
        if number == 1 { "" } else { "s" }
    )
}

/// As [`count`], but the digits are not in groups: `12345 calls`.
pub fn ungrouped(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        number => format!("{number} {noun}s"),
    }
}

/// Digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time as UTC: `2025-11-20 09:12:16 UTC`; nanoseconds since 1970, leap seconds not counted.
pub fn utc(nanoseconds: u64) -> String {
    let seconds = nanoseconds / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 0000-03-01: a year that starts in March ends with its leap day.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_read() {
        for (text, expected) in [
            ("0", Some(0)),
            ("4096", Some(4096)),
            ("256M", Some(256 << 20)),
            ("256 MiB", Some(256 << 20)),
            ("1.5g", Some(3 << 29)),
            ("7b", Some(7)),
            ("", None),
            ("M", None),
            ("-1", None),
            ("1X", None),
            ("1.2.3", None),
            ("99999999T", None),
            ("64K", Some(64 << 10)),
            ("16G", Some(16 << 30)),
            ("K", None),
            ("99999999999G", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), expected, "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (number, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (150_754_820_096, "140.4 GiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn times() {
        for (number, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (12_345, "12.3 us"),
            (999_949, "999.9 us"),
            (999_951, "1.00 ms"),
            (1_500_000, "1.50 ms"),
            (999_999_999, "1.00 s"),
            (250_000_000_000, "4 min 10 s"),
        ] {
            assert_eq!(time(number), text);
        }
        assert_eq!(time_or_unknown(None), "-");
    }

    #[test]
    fn counts() {
        for (number, text) in [
            (0, "0 calls"),
            (1, "1 call"),
            (999, "999 calls"),
            (1_234_567, "1,234,567 calls"),
        ] {
            assert_eq!(count(number, "call"), text);
            assert_eq!(ungrouped(number, "call"), text.replace(',', ""));
        }
    }

    #[test]
    fn moments() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
    }
}
