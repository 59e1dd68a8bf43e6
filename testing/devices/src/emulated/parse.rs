//! The text form of a profile: `NAME:KEY=VALUE,...` and back.

use super::profile::{Iops, Mechanics, Profile, ProfileError, Rate};
use std::time::Duration;

/// More requests at a time than any medium here takes; stands for "no limit".
pub(super) const MAX_DEPTH: u32 = 65_536;

/// No request or flush takes longer: a mistyped unit should not look like a hang.
const MAX_TIME: Duration = Duration::from_secs(60);

const KEYS: &str = "latency, bandwidth, depth, iops, burst, flush, fua, discard, zero, seek, rpm, \
                    media, spindles, cache, protected";

type Result<T> = std::result::Result<T, ProfileError>;

fn wrong<T>(line: String) -> Result<T> {
    Err(ProfileError(line))
}

pub(super) fn profile(text: &str) -> Result<Profile> {
    let (name, changes) = text.split_once(':').unwrap_or((text, ""));
    let Some(mut profile) = Profile::by_name(name) else {
        return wrong(format!(
            "no medium is called {name:?}: use one of {}",
            Profile::names().join(", ")
        ));
    };
    for change in changes.split(',').filter(|word| !word.is_empty()) {
        let Some((key, value)) = change.split_once('=') else {
            return wrong(format!("{change:?} is no KEY=VALUE: the keys of a medium are {KEYS}"));
        };
        set(&mut profile, key, value)?;
        profile.changed = true;
    }
    Ok(profile)
}

fn set(profile: &mut Profile, key: &str, value: &str) -> Result<()> {
    match key {
        "latency" => profile.latency = time(key, value)?,
        "flush" => profile.flush = time(key, value)?,
        "bandwidth" => {
            profile.bandwidth = if value == "none" { None } else { Some(rate(key, value)?) }
        }
        "depth" => profile.depth = number(key, value, 1, MAX_DEPTH)?,
        "iops" if value == "none" => profile.iops = None,
        "iops" => {
            let burst = profile.iops.map_or(1, |iops| iops.burst);
            profile.iops = Some(Iops { per_second: number(key, value, 1, 100_000_000)?, burst });
        }
        "burst" => match &mut profile.iops {
            Some(iops) => iops.burst = number(key, value, 1, 1_000_000)?,
            None => return wrong("burst needs a cap: write iops=NUMBER before it".into()),
        },
        "fua" => profile.native_fua = choice(key, value, "native", "flush")?,
        "discard" => profile.discard = choice(key, value, "on", "off")?,
        "zero" => profile.fast_zero = choice(key, value, "fast", "write")?,
        "seek" if value == "none" => profile.mechanics = None,
        "seek" | "rpm" | "media" | "spindles" | "cache" | "protected" => {
            let disk = Profile::by_name("sata").and_then(|sata| sata.mechanics);
            if let Some(mut disk) = profile.mechanics.or(disk) {
                set_mechanics(&mut disk, key, value)?;
                profile.mechanics = Some(disk);
            }
        }
        _ => return wrong(format!("a medium has no {key:?}: its keys are {KEYS}")),
    }
    Ok(())
}

fn set_mechanics(disk: &mut Mechanics, key: &str, value: &str) -> Result<()> {
    match key {
        "seek" => disk.seek = time(key, value)?,
        "rpm" => disk.rpm = number(key, value, 60, 1_000_000)?,
        "media" => disk.media = rate(key, value)?,
        "spindles" => disk.spindles = number(key, value, 1, 1024)?,
        "cache" => disk.cache = scaled(key, value, 1024, "64K, 8M")?,
        _ => disk.protected = choice(key, value, "on", "off")?,
    }
    Ok(())
}

fn number(key: &str, value: &str, min: u32, max: u32) -> Result<u32> {
    match value.parse() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => wrong(format!("{key}={value} makes no sense: use a number from {min} to {max}")),
    }
}

fn choice(key: &str, value: &str, yes: &str, no: &str) -> Result<bool> {
    if value == yes || value == no {
        return Ok(value == yes);
    }
    wrong(format!("{key}={value} makes no sense: use {key}={yes} or {key}={no}"))
}

fn rate(key: &str, value: &str) -> Result<Rate> {
    match scaled(key, value, 1000, "100M, 2G")? {
        0 => wrong(format!("{key}={value} makes no sense: nothing would ever arrive")),
        bytes => Ok(Rate(bytes)),
    }
}

/// A number with k, M, G or T behind it, each `base` times the one before.
fn scaled(key: &str, value: &str, base: u64, example: &str) -> Result<u64> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match &value[digits.len()..] {
        "" => Some(0),
        "k" | "K" => Some(1),
        "M" => Some(2),
        "G" => Some(3),
        "T" => Some(4),
        _ => None,
    };
    let bytes = power.and_then(|power| digits.parse::<u64>().ok()?.checked_mul(base.pow(power)));
    match bytes.filter(|bytes| *bytes < 1 << 60) {
        Some(bytes) => Ok(bytes),
        None => wrong(format!("{key}={value} makes no sense: write it like {example}")),
    }
}

/// `80us`, `1.5ms`, `2s`, `0`.
fn time(key: &str, value: &str) -> Result<Duration> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &value[digits.len()..] {
        "ns" => Some(1e-9),
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "s" => Some(1.0),
        "" if value == "0" => Some(1.0),
        _ => None,
    };
    let time =
        unit.and_then(|unit| Duration::try_from_secs_f64(digits.parse::<f64>().ok()? * unit).ok());
    match time.filter(|time| *time <= MAX_TIME) {
        Some(time) => Ok(time),
        None => wrong(format!(
            "{key}={value} is no time up to a minute: write it like 80us, 1.5ms or 0"
        )),
    }
}

pub(super) fn numbers(profile: &Profile) -> String {
    let on = |yes: bool| if yes { "on" } else { "off" };
    let mut words = vec![
        format!("latency={}", show_time(profile.latency)),
        format!("bandwidth={}", profile.bandwidth.map_or("none".into(), |rate| show(rate.0, 1000))),
        format!("depth={}", profile.depth),
    ];
    match profile.iops {
        Some(iops) => words.push(format!("iops={},burst={}", iops.per_second, iops.burst)),
        None => words.push("iops=none".into()),
    }
    words.push(format!("flush={}", show_time(profile.flush)));
    words.push(format!("fua={}", if profile.native_fua { "native" } else { "flush" }));
    words.push(format!("discard={}", on(profile.discard)));
    words.push(format!("zero={}", if profile.fast_zero { "fast" } else { "write" }));
    match profile.mechanics {
        Some(disk) => words.push(format!(
            "seek={},rpm={},media={},spindles={},cache={},protected={}",
            show_time(disk.seek),
            disk.rpm,
            show(disk.media.0, 1000),
            disk.spindles,
            show(disk.cache, 1024),
            on(disk.protected)
        )),
        None => words.push("seek=none".into()),
    }
    words.join(",")
}

fn show(n: u64, base: u64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut power = 0;
    while n > 0 && power + 1 < units.len() && n.is_multiple_of(base.pow(power as u32 + 1)) {
        power += 1;
    }
    format!("{}{}", n / base.pow(power as u32), units[power])
}

fn show_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    match nanos {
        0 => "0".into(),
        _ if nanos.is_multiple_of(1_000_000_000) => format!("{}s", nanos / 1_000_000_000),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}ms", nanos / 1_000_000),
        _ if nanos.is_multiple_of(1000) => format!("{}us", nanos / 1000),
        _ => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_prints_what_it_reads() {
        for name in Profile::names() {
            let plain: Profile = name.parse().expect("a name");
            assert_eq!(plain.to_string(), *name);
            let mut spelled: Profile =
                format!("{name}:{}", plain.numbers()).parse().expect("its own text");
            assert_eq!(spelled.to_string().parse::<Profile>().expect("again"), spelled);
            spelled.changed = false;
            assert_eq!(spelled, plain);
        }
    }

    #[test]
    fn a_change_changes_one_number() {
        let text = "custom:latency=200us,bandwidth=100M,depth=16,flush=1.5ms,seek=8ms,cache=64K";
        let p: Profile = text.parse().expect("a medium");
        assert_eq!(p.latency, Duration::from_micros(200));
        assert_eq!(p.bandwidth, Some(Rate(100_000_000)));
        assert_eq!((p.depth, p.flush), (16, Duration::from_micros(1500)));
        let disk = p.mechanics.expect("seek makes it a disk");
        assert_eq!((disk.seek, disk.rpm, disk.cache), (Duration::from_millis(8), 7200, 65536));
        let p: Profile = "cloud:flush=2ms,iops=none".parse().expect("a medium");
        let cloud = Profile::by_name("cloud").expect("known");
        assert_eq!(
            Profile { flush: cloud.flush, iops: cloud.iops, changed: false, ..p.clone() },
            cloud
        );
        assert_eq!((p.flush, p.iops), (Duration::from_millis(2), None));
        assert!(!p.is_free() && Profile::from_text("custom").expect("a medium").is_free());
    }

    #[test]
    fn mistakes_get_one_line_that_helps() {
        for (text, part) in [
            ("floppy", "sata, raid, cloud"),
            ("", "sata, raid, cloud"),
            ("cloud:flush", "KEY=VALUE"),
            ("cloud:flash=1ms", "its keys are latency"),
            ("cloud:flush=1", "1.5ms"),
            ("cloud:flush=-1ms", "1.5ms"),
            ("cloud:flush=61s", "up to a minute"),
            ("cloud:bandwidth=0", "nothing would ever arrive"),
            ("cloud:bandwidth=10X", "100M"),
            ("cloud:bandwidth=9999999999T", "100M"),
            ("cloud:depth=0", "from 1 to"),
            ("nvme:burst=2", "iops="),
            ("nvme:fua=perhaps", "fua=native or fua=flush"),
        ] {
            let line = text.parse::<Profile>().expect_err(text).to_string();
            assert!(line.contains(part) && !line.contains('\n'), "{text}: {line}");
        }
    }
}
