//! What to do when device files were removed while they are served.

use super::DevicePart;

/// What happened and the command that saves what is on all of them: one by one would end the server after the
/// first.
pub(super) fn warning(devices: &[DevicePart]) -> Option<String> {
    let open = |device: &DevicePart| device.open_file.clone().filter(|_| device.removed);
    let removed: Vec<_> = devices.iter().filter_map(|device| Some((device, open(device)?))).collect();
    let pid = removed.first()?.1.split('/').nth(2)?.to_owned();
    let names: Vec<_> =
        removed.iter().map(|(device, _)| format!("{} ({})", device.name, device.path)).collect();
    let copies = removed
        .iter()
        .map(|(device, open)| format!("cp -p --sparse=always {} {} && ", quoted(open), quoted(&device.path)));
    Some(format!(
        "device {}: the file was removed, or another took its place. The server still has it open, and all that is \
         on it is gone when the server ends; until then every FLUSH of a volume with one copy fails. Do not stop \
         the server. As its user, or root, halt it, copy what it has open, and end it: \
         kill -STOP {pid} && {}sync && kill -KILL {pid} ; then start it again: nothing is missing. If a copy fails, \
         the server is not ended: copy to another place, and name that in the pool file",
        names.join(", device "),
        copies.collect::<String>(),
    ))
}

/// A word for the shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_copied_before_the_server_ends_whatever_their_names() {
        let device = |name: &str, path: &str, removed| DevicePart {
            name: name.into(),
            path: path.into(),
            removed,
            open_file: Some(format!("/proc/77/fd/{}", name.len())),
            ..DevicePart::default()
        };
        assert_eq!(warning(&[device("a", "/a", false)]), None);
        let devices = [device("a", "/a b", true), device("bb", "/b", false), device("ccc", "/it's", true)];
        let said = warning(&devices).expect("a warning");
        let command = "kill -STOP 77 && cp -p --sparse=always '/proc/77/fd/1' '/a b' && \
                       cp -p --sparse=always '/proc/77/fd/3' '/it'\\''s' && sync && kill -KILL 77 ;";
        assert!(said.contains(command), "{said}");
    }
}
