//! Values on the command line: sizes, durations, amounts and pairs.

use aktis_protocol::admin::IdPrefix;
use aktis_protocol::{Amount, limits, resources};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SIZE_UNITS: &[(&str, u64)] = &[
    ("", 1),
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

/// What a dead node ran waits so long at most.
const NODE_TIMEOUT_SECONDS_MAX: u64 = 600;

const DURATION_UNITS: &[(&str, u64)] = &[("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];

/// A number of bytes: `4GiB`, `1.5GB`, `1048576`.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let wrong =
        || format!("`{text}` is no size\nhint: write a number and a unit, such as 512MiB, 4GiB or 1.5GB");
    let start = text.find(|character: char| character.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(start);
    let known = SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit.trim()));
    let (_, factor) = known.ok_or_else(wrong)?;
    scale(number.trim(), *factor).filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// The same, or none at all.
pub(crate) fn size_or_none(text: &str) -> Result<u64, String> {
    if text.trim() == "0" { Ok(0) } else { size(text) }
}

/// A directory that is there, and that can be written to, by a path that means the same wherever this process is.
pub(crate) fn directory(text: &str) -> Result<PathBuf, String> {
    let path = std::path::absolute(text).unwrap_or_else(|_| text.into());
    if !path.is_dir() {
        return Err(format!(
            "`{text}` is no directory\nhint: make it first, on a disk with room for objects"
        ));
    }
    // Objects come much later, and then it is late for finding out.
    let probe = path.join(format!(".aktis-{}", std::process::id()));
    match std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe)) {
        Ok(()) => Ok(path),
        Err(error) => Err(format!(
            "nothing can be made in `{text}`: {error}\nhint: name a directory that you may write to, on a disk with room"
        )),
    }
}

/// An amount of memory, in bytes.
pub(crate) fn memory(text: &str) -> Result<Amount, String> {
    let bytes = size(text)?.checked_mul(Amount::ONE.0);
    bytes.map(Amount).ok_or_else(|| format!("`{text}` is more memory than any machine has"))
}

/// A decimal number times a factor, rounded down; no floating point, which would round sizes.
fn scale(number: &str, factor: u64) -> Option<u64> {
    const DECIMALS_MAX: usize = 6;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !all_digits(whole) || !all_digits(fraction) || fraction.len() > DECIMALS_MAX {
        return None;
    }
    let whole = u128::from(whole.parse::<u64>().ok()?) * u128::from(factor);
    let parts = u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor);
    (whole + parts / 10_u128.pow(fraction.len() as u32)).try_into().ok()
}

/// A duration: `90s`, `30m`, `1h30m`, `7d`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("`{text}` is no duration\nhint: write numbers with units, such as 90s, 30m, 1h30m or 7d");
    let mut seconds = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u64 = rest[..end].parse().map_err(|_| wrong())?;
        let unit_end = rest[end..].find(|character: char| character.is_ascii_digit());
        let unit_end = unit_end.map_or(rest.len(), |length| end + length);
        let unit = &rest[end..unit_end];
        let (_, factor) = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        seconds = number.checked_mul(*factor).and_then(|part| seconds.checked_add(part)).ok_or_else(wrong)?;
        rest = &rest[unit_end..];
    }
    if seconds == 0 { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

/// After how long a silent node is dead.
pub(crate) fn node_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration(text)?;
    match timeout.as_secs() > NODE_TIMEOUT_SECONDS_MAX {
        true => Err(format!("a node would be missed for {text}\nhint: {NODE_TIMEOUT_SECONDS_MAX}s at most")),
        false => Ok(timeout),
    }
}

/// A time in milliseconds since 1970: `2026-01-31T08:00:00Z`, or `10m` for so long ago.
pub(crate) fn since(text: &str) -> Result<u64, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ago = duration(text).map(|ago| now.saturating_sub(ago).as_millis() as u64).ok();
    ago.or_else(|| aktis_protocol::text::parse_rfc3339(text)).ok_or_else(|| {
        format!(
            "`{text}` is no time\nhint: write a time of UTC such as 2026-01-31T08:00:00Z, or 10m or 2h for so long ago"
        )
    })
}

/// For how long a token is good.
pub(crate) fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = duration(text)?;
    match lifetime.as_secs() <= limits::TOKEN_SECONDS_MAX {
        true => Ok(lifetime),
        false => Err(format!(
            "a token is good for {}d at most\nhint: `aktis token` prints a new one whenever a machine is to join",
            limits::TOKEN_SECONDS_MAX / 86_400
        )),
    }
}

/// An amount of a resource: `8`, `0.5`, `0`.
pub(crate) fn amount(text: &str) -> Result<Amount, String> {
    text.parse().ok().and_then(Amount::from_f64).ok_or_else(|| {
        format!("`{text}` is no amount\nhint: amounts are not negative and have at most four decimals")
    })
}

/// A number of GPUs: they are handed out by index, so there are whole ones only.
pub(crate) fn gpus(text: &str) -> Result<Amount, String> {
    const GPUS_MAX: u64 = 1024;
    let count = text.parse().ok().filter(|count| *count <= GPUS_MAX);
    count
        .map(Amount::units)
        .ok_or_else(|| format!("`{text}` is no number of GPUs\nhint: write a whole number up to {GPUS_MAX}"))
}

/// A resource of the user's own: `licence=2`.
pub(crate) fn resource(text: &str) -> Result<(String, Amount), String> {
    let (name, value) = pair(text, "licence=2")?;
    let option = match &*name {
        resources::CPU => Some("--cpus"),
        resources::GPU => Some("--gpus"),
        resources::MEMORY => Some("--memory"),
        _ => None,
    };
    match option {
        Some(option) => Err(format!("{name} has an option of its own\nhint: use {option} instead")),
        None => Ok((name, amount(&value)?)),
    }
}

/// A label: `zone=a`.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    pair(text, "zone=a")
}

/// A field and the value that it must have: `state=running`.
pub(crate) fn filter(text: &str) -> Result<(String, String), String> {
    pair(text, "kind=method")
}

fn pair(text: &str, example: &str) -> Result<(String, String), String> {
    let wrong = || format!("`{text}` is no name with a value\nhint: write them as in {example}");
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    if name.trim().is_empty() { Err(wrong()) } else { Ok((name.trim().to_owned(), value.trim().to_owned())) }
}

/// Where the head listens: `host:port`.
pub(crate) fn address(text: &str) -> Result<String, String> {
    let wrong = || format!("`{text}` is no address\nhint: write a host and a port, such as 10.0.0.1:6380");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let bare_six = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    let usable_port = port.parse::<u16>().is_ok_and(|port| port != 0);
    if host.is_empty() || bare_six || !usable_port { Err(wrong()) } else { Ok(text.to_owned()) }
}

/// Where to listen: an address of this machine, at which others find it.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    let hint =
        "hint: write an IP address of this machine and a port, such as 10.0.0.1:6380; port 0 is any free one";
    let address: SocketAddr =
        text.parse().map_err(|_| format!("`{text}` is no address to listen on\n{hint}"))?;
    match address.ip().is_unspecified() {
        true => Err(format!("`{text}` means all addresses, and others must be told one\n{hint}")),
        false => Ok(address),
    }
}

/// The start of an id.
pub(crate) fn id(text: &str) -> Result<IdPrefix, String> {
    text.parse().map_err(|_| {
        format!(
            "`{text}` is no id\nhint: an id has {} hexadecimal digits; the first {} or more are enough",
            IdPrefix::DIGITS_MAX,
            IdPrefix::DIGITS_MIN
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact_and_others_are_refused() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("1B", 1),
            ("4GiB", 4 << 30),
            ("4gib", 4 << 30),
            ("4 GiB", 4 << 30),
            ("1.5GB", 1_500_000_000),
            ("0.5KiB", 512),
            ("16777215.999999TiB", 18_446_744_073_708_452_104),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in
            ["", "GiB", "4G", "4XB", "-1", "1.GB", ".5GB", "1e9", "0", "16777216TiB", "1.0000001GB", "é"]
        {
            assert!(size(text).is_err_and(|error| error.contains("hint: ")), "{text}");
        }
    }

    #[test]
    fn nothing_at_all_may_be_spilled_and_only_to_a_directory() {
        assert_eq!(size_or_none("0"), Ok(0));
        assert_eq!(size_or_none("4GiB"), Ok(4 << 30));
        assert!(size_or_none("0GiB").is_err());
        let place = std::env::temp_dir();
        assert_eq!(directory(place.to_str().expect("text")), Ok(place));
        for text in ["/proc/version", "/proc"] {
            assert!(directory(text).is_err_and(|error| error.contains("hint: ")), "{text}");
        }
    }

    #[test]
    fn memory_is_an_amount_in_bytes() {
        assert_eq!(memory("1KiB"), Ok(Amount::units(1024)));
        assert!(memory("2000TiB").is_err() && memory("much").is_err());
    }

    #[test]
    fn durations_have_units() {
        for (text, seconds) in [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("7d", 604_800), ("0h1s", 1)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in
            ["", "30", "m", "0s", "1.5h", "30m5", "5 m", "1w", "99999999999999999999s", "999999999999999999d"]
        {
            assert!(duration(text).is_err_and(|error| error.contains("hint: ")), "{text}");
        }
        assert!(lifetime("365d").is_ok());
        assert!(lifetime("365d1s").is_err_and(|error| error.contains("hint: ")));
    }

    #[test]
    fn pairs_and_addresses_are_checked() {
        assert_eq!(resource("licence=1.5"), Ok(("licence".into(), Amount(15_000))));
        assert!(resource("CPU=2").is_err_and(|error| error.contains("--cpus")));
        for text in ["licence", "=2", "licence=", "licence=-1", "licence=many"] {
            assert!(resource(text).is_err(), "{text}");
        }
        assert_eq!(label("zone="), Ok(("zone".into(), String::new())));
        for text in ["head:6380", "10.0.0.1:1", "[::1]:6380"] {
            assert_eq!(address(text).as_deref(), Ok(text));
        }
        assert_eq!(listen("10.0.0.1:0"), Ok(([10, 0, 0, 1], 0).into()));
        for text in ["0.0.0.0:6380", "[::]:6380", "10.0.0.1", "head:6380"] {
            assert!(listen(text).is_err_and(|error| error.contains("hint: ")), "{text}");
        }
        for text in ["", "head", ":1", "head:", "head:0", "head:99999", "::1", "head:port"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
