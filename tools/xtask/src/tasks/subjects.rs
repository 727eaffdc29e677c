//! The form of the subjects of commits.

use tool_error::{Error, Result};

use crate::host;
use crate::host::packages;

/// Commits before this time have subjects of other forms.
const SINCE: &str = "2026-11-28T23:00:00Z";
/// Maximum number of characters of a subject.
const LONGEST: usize = 72;

/// The beginnings of the subjects that git itself gives to commits. These subjects may have any length.
const BY_GIT: [&str; 2] = ["Revert \"", "Reapply \""];

/// Checks the subject of each recent commit. Merges, and commits with a subject of git, are exempt.
///
/// A copy of the repository without its history, such as an unpacked archive, has no commits to check.
pub(crate) fn check() -> Result<()> {
    let workspace = host::workspace();
    if !workspace.join(".git").exists() {
        host::progress("this copy of the repository has no commits to check");
        return Ok(());
    }
    packages::require(&["git"])?;
    let mut git = host::command("git");
    // git reads a repository of another user only if its path is declared safe.
    git.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory");
    git.env("GIT_CONFIG_VALUE_0", &workspace).current_dir(&workspace);
    git.args(["log", "--no-merges", "--format=%h %s", "--since-as-filter", SINCE]);
    let log = host::output(&mut git, "list the commits")?;
    let log = String::from_utf8_lossy(&log);
    let faults: Vec<String> = log.lines().filter_map(fault).collect();
    if faults.is_empty() { Ok(()) } else { Err(Error::new(faults.join("\n"))) }
}

/// Returns the fault of the subject in `line`, which begins with the commit's abbreviated name.
fn fault(line: &str) -> Option<String> {
    let (commit, subject) = line.split_once(' ').unwrap_or((line, ""));
    if BY_GIT.iter().any(|beginning| subject.starts_with(beginning)) {
        return None;
    }
    let length = subject.chars().count();
    if length > LONGEST {
        return Some(format!(
            "the subject of commit {commit} has {length} characters: shorten it to {LONGEST}"
        ));
    }
    let is_well_formed = subject.split_once(": ").is_some_and(|(areas, action)| {
        let has_verb = action.starts_with(|first: char| first.is_ascii_lowercase());
        areas.split(", ").all(is_area) && has_verb && !action.ends_with('.')
    });
    (!is_well_formed).then(|| {
        format!("the subject of commit {commit} is {subject:?}: begin it with `area: imperative verb`, without a final period")
    })
}

/// Returns `true` if `text` has the form of an area's name: a word, or a path.
fn is_area(text: &str) -> bool {
    let is_part = |part: char| part.is_ascii_alphanumeric() || "-_./".contains(part);
    !text.is_empty() && text.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_names_area_and_action() {
        for subject in
            ["cm: name the field", "xtask, tests: count reruns", "verbs-core: keep `Mapping` alive"]
        {
            assert_eq!(fault(&format!("0123abc {subject}")), None);
        }
        let longest = format!("cm: {}", "x".repeat(LONGEST - "cm: ".len()));
        for by_git in [format!("Revert \"{longest}\""), format!("Reapply \"{longest}\"")] {
            assert_eq!(fault(&format!("0123abc {by_git}")), None);
        }
        for subject in
            ["", "name the field", "cm: Name the field", "cm: name it.", "the cm: name it", ": x"]
        {
            let text =
                fault(&format!("0123abc {subject}")).expect("the subject should be rejected");
            assert!(text.contains("0123abc") && text.contains(subject), "{text}");
        }
    }

    #[test]
    fn long_subject_is_reported_with_its_length() {
        let line = |length| format!("0123abc cm: {}", "x".repeat(length - "cm: ".len()));
        assert_eq!(fault(&line(LONGEST)), None);
        let text = fault(&line(LONGEST + 1)).expect("the subject should be rejected");
        assert!(text.contains("0123abc has 73 characters"), "{text}");
    }
}
