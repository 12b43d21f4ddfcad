//! The `[serve]` section: limits for clients.

use super::table::Keys;
use weir_model::Nanos;
use weir_serve::Limits;
use weir_sim::units::duration;

pub(super) const KEYS: &[&str] = &["clients", "clients_per_address", "handshake_timeout", "control_timeout"];
/// Minimum of the timeouts for clients; [`TIMEOUT_MAX`] is their maximum.
const TIMEOUT_MIN: Nanos = Nanos::secs(1);
const TIMEOUT_MAX: Nanos = Nanos::secs(3600);

/// Returns the limits that a pool file sets; the others keep their defaults.
pub(super) fn limits(root: &Keys<'_, '_>) -> Limits {
    let mut limits = Limits::default();
    let Some(keys) = root.optional_table("serve", KEYS) else { return limits };
    let clients = keys.number("clients", count);
    limits.clients = clients.map_or(limits.clients, |n| n as u16);
    let per_address = keys.number("clients_per_address", count);
    limits.clients_per_address = per_address.map_or(limits.clients_per_address, |n| n as u16);
    limits.handshake_timeout =
        keys.optional("handshake_timeout", timeout).unwrap_or(limits.handshake_timeout);
    limits.control_timeout = keys.optional("control_timeout", timeout).unwrap_or(limits.control_timeout);
    limits
}

fn count(number: f64) -> Result<f64, String> {
    let most = f64::from(Limits::CLIENTS_MAX);
    match number.fract() == 0.0 && (1.0..=most).contains(&number) {
        true => Ok(number),
        false => Err(format!("a whole number from 1 to {most}")),
    }
}

fn timeout(text: &str) -> Result<Nanos, String> {
    match duration(text) {
        Ok(time) if (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&time) => Ok(time),
        _ => Err("a time from \"1s\" to \"1h\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool_file::{Mistakes, parse};

    fn limits_of(serve: &str) -> Result<Limits, Mistakes> {
        let text = format!(
            "[pool]\nname = \"a\"\n[serve]\n{serve}\n[[device]]\nname = \"d\"\npath = \"d.img\"\nsize = \"1GiB\"\n"
        );
        parse(&text).map(|file| file.serve)
    }

    #[test]
    fn limits_are_parsed_and_mistakes_name_the_allowed_values() {
        assert_eq!(limits_of(""), Ok(Limits::default()));
        let all =
            "clients = 4000\nclients_per_address = 10\nhandshake_timeout = \"5s\"\ncontrol_timeout = \"2m\"";
        let expected = Limits {
            clients: 4000,
            clients_per_address: 10,
            handshake_timeout: Nanos::secs(5),
            control_timeout: Nanos::secs(120),
            ..Limits::default()
        };
        assert_eq!(limits_of(all), Ok(expected));
        for (wrong, help) in [
            ("clients = 0", "a whole number from 1 to 16384"),
            ("clients = 20000", "a whole number from 1 to 16384"),
            ("clients = 1.5", "a whole number from 1 to 16384"),
            ("clients = \"many\"", "a whole number from 1 to 16384"),
            ("handshake_timeout = \"0s\"", "a time from \"1s\" to \"1h\""),
            ("control_timeout = 5", "in quotes"),
            ("client = 5", "the nearest is clients"),
        ] {
            let mistakes = limits_of(wrong).expect_err(wrong);
            let [mistake] = &mistakes.0[..] else { panic!("{wrong}: {mistakes:?}") };
            assert!(mistake.help.contains(help), "{wrong}: {mistake:?}");
            assert_eq!(mistake.line, 4, "{wrong}");
        }
    }
}
