//! Checks of the documents: the README and the programs that `docs` shows, the tests that the semantics name, and the
//! lengths of source files.

#[expect(dead_code, reason = "the program is compiled, and needs a server to run")]
mod example;

use std::fs;
use std::path::Path;

/// Checks that the README shows the program that is compiled as a module of this test.
#[test]
fn readme_shows_compiled_program() {
    let shown = format!("```rust,no_run\n{}```\n", include_str!("example.rs"));
    assert!(include_str!("../../README.md").contains(&shown), "the README shows another program");
}

/// Checks that the crate's front page has the README's introduction and example, and no other text.
#[test]
fn crate_page_copies_readme() {
    let readme = include_str!("../../README.md");
    let page = include_str!("../../rdmacm/README.md");
    let (introduction, _) = readme.split_once("## Quick start\n").expect("a quick start");
    let rest = page
        .strip_prefix(introduction)
        .expect("the page should begin with the README's introduction");
    assert!(rest.contains(include_str!("example.rs")), "the page shows another program");
    let paragraphs: Vec<&str> = readme.trim_end().split("\n\n").collect();
    for paragraph in rest.trim_end().split("\n\n") {
        assert!(paragraphs.contains(&paragraph), "the README has no paragraph {paragraph:?}");
    }
}

/// Checks that the crate page names each feature except `null`, which is for tests only.
#[test]
fn crate_page_names_each_feature() {
    let manifest = include_str!("../../rdmacm/Cargo.toml");
    let page = include_str!("../../rdmacm/README.md");
    let (_, features) = manifest.split_once("\n[features]\n").expect("features");
    let features = features.lines().take_while(|line| !line.starts_with('['));
    let names = features.filter_map(|line| Some(line.split_once(" = ")?.0));
    let public: Vec<_> = names.filter(|name| *name != "null").collect();
    assert!(public.len() >= 6, "{public:?}");
    for name in public {
        assert!(page.contains(&format!("`{name}`")), "{name} is missing");
    }
}

/// Beginnings of sentences that name their subject by a clause, or not at all.
const RIDDLES: [&str; 4] = ["What ", "The same", "Those of ", "Whether "];

#[test]
fn summary_lines_name_their_subjects() {
    let mut riddles = Vec::new();
    for folder in ["rdmacm", "tests", "tools", "ucma-abi", "verbs-abi", "verbs-core"] {
        let sources = ["rs", "c", "h"].map(|extension| files_with(folder, extension));
        for (path, text) in sources.into_iter().flatten() {
            for (number, line) in text.lines().enumerate() {
                let line = line.trim_start();
                let starts = ["/// ", "//! ", "/* ", "* "];
                let text = starts.iter().find_map(|start| line.strip_prefix(start));
                if text.is_some_and(|text| RIDDLES.iter().any(|riddle| text.starts_with(riddle))) {
                    riddles.push(format!("{folder}/{path}:{}: {line}", number + 1));
                }
            }
        }
    }
    for folder in ["rdmacm", "tests", "tools", "ucma-abi", "verbs-abi", "verbs-core"] {
        let mut descriptions = 0;
        for (path, text) in files_with(folder, "toml") {
            for line in text.lines().filter_map(|line| line.strip_prefix("description = \"")) {
                descriptions += 1;
                if RIDDLES.iter().any(|riddle| line.starts_with(riddle)) {
                    riddles.push(format!("{folder}/{path}: {line}"));
                }
            }
        }
        assert!(descriptions > 0, "{folder} has no manifest with a description");
    }
    assert!(riddles.is_empty(), "{riddles:#?}");
}

/// Largest length of a summary of a public item, in characters.
const MAX_SUMMARY: usize = 100;

/// Returns a summary without the targets of its links.
fn visible(summary: &str) -> String {
    let mut parts = summary.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // The name of a function ends with parentheses, also in a target.
        let part = part.replace("()", "");
        text.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    text.replace(['[', ']'], "")
}

/// Returns the line and the summary of each public item whose summary is too long.
fn long_summaries(source: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.starts_with("///")) {
        if at > 0 && lines[at - 1].starts_with("///") {
            continue;
        }
        let text: Vec<&str> =
            lines[at..].iter().map_while(|line| line.strip_prefix("///")).map(str::trim).collect();
        let mut rest = lines[at + text.len()..].iter().skip_while(|line| line.starts_with("#["));
        let is_public = rest.next().is_some_and(|item| item.starts_with("pub "));
        let summary: Vec<&str> = text.into_iter().take_while(|line| !line.is_empty()).collect();
        let summary = visible(&summary.join(" "));
        if is_public && summary.chars().count() > MAX_SUMMARY {
            found.push((at + 1, format!("{line} ... ({} characters)", summary.chars().count())));
        }
    }
    found
}

#[test]
fn summaries_of_public_items_are_short() {
    let mut long = Vec::new();
    for folder in ["rdmacm/src", "ucma-abi/src", "verbs-abi/src", "verbs-core/src"] {
        for (path, text) in files(folder) {
            let found = long_summaries(&text).into_iter();
            long.extend(found.map(|(line, text)| format!("{folder}/{path}:{line}: {text}")));
        }
    }
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn long_summaries_are_found() {
    let summary =
        |length: usize| format!("{} [`x`](Self::{})", "y".repeat(length - 4), "z".repeat(50));
    let item =
        |length, item| format!("/// {}\n///\n/// More.\n#[inline]\n{item}\n", summary(length));
    assert_eq!(long_summaries(&item(101, "pub fn f() {}")).len(), 1);
    assert!(long_summaries(&item(100, "pub fn f() {}")).is_empty());
    assert!(long_summaries(&item(101, "pub(crate) fn f() {}")).is_empty());
    let lines = format!("/// {}\n/// {}\npub fn f() {{}}\n", "y".repeat(60), "y".repeat(60));
    assert_eq!(long_summaries(&lines).len(), 1);
}

/// Checks that each page of the guide ends with links. CONTRIBUTING.md has the reasons of longer pages.
#[test]
fn guide_pages_are_short_and_link_others() {
    const LONG: [&str; 3] = ["compile_time_checks.rs", "from_libibverbs.rs", "from_librdmacm.rs"];
    let pages = files("rdmacm/src/guide");
    let pages = pages.iter().filter(|(path, _)| path != "mod.rs" && !path.contains('/'));
    let mut count = 0;
    for (path, text) in pages {
        count += 1;
        let lines = text.lines().count();
        assert!(lines <= 100 || LONG.contains(&path.as_str()), "{path} has {lines} lines");
        let (_, links) = text.rsplit_once("\n//! # ").expect("a last section");
        assert!(links.starts_with("See also\n"), "{path} does not end with \"See also\"");
        assert!(links.matches("](super::").count() >= 2, "{path} names fewer than two pages");
    }
    assert!(count >= 12, "{count} pages");
}

/// Asserts that docs/low-level.md shows `example`, to the letter.
fn shows(example: &str) {
    let shown = include_str!("../../docs/low-level.md");
    assert!(
        shown.contains(&format!("```rust\n{example}```\n")),
        "docs/low-level.md shows another text"
    );
}

/// Checks the length of the README: everything long is in `docs`.
#[test]
fn readme_is_short() {
    const MAX_LINES: usize = 150;
    let lines = include_str!("../../README.md").lines().count();
    assert!(lines <= MAX_LINES, "README.md has {lines} lines, more than {MAX_LINES}");
}

/// Checks that each link of the documents to a file of the repository leads to one.
#[test]
fn links_lead_to_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let documents =
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "tests/SEMANTICS.md"];
    let pages = fs::read_dir(root.join("docs")).expect("the folder docs");
    let pages = pages.map(|page| page.expect("an entry").path());
    let documents = documents.into_iter().map(|document| root.join(document)).chain(pages);
    let mut count = 0;
    for document in documents {
        let text = fs::read_to_string(&document).expect("a document");
        let folder = document.parent().expect("a folder");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().expect("a first part");
            if !file.is_empty() && !file.contains("://") {
                count += 1;
                assert!(folder.join(file).exists(), "{}: no file {file}", document.display());
            }
        }
    }
    assert!(count >= 15, "{count} links");
}

#[test]
fn document_shows_server_example() {
    shows(include_str!("../../rdmacm/examples/server.rs"));
}

#[test]
fn document_shows_client_example() {
    shows(include_str!("../../rdmacm/examples/client.rs"));
}

/// Checks that each example is short, begins with its run command, and is named in the README.
#[test]
fn examples_are_short_and_state_run_command() {
    let readme = include_str!("../../README.md");
    let examples = files("rdmacm/examples");
    assert!(examples.len() >= 7, "{examples:?}");
    for (path, text) in examples {
        let name = path.strip_suffix(".rs").expect("a source file");
        let lines = text.lines().count();
        assert!(lines < 150, "{path} has {lines} lines");
        let about: Vec<_> = text.lines().map_while(|line| line.strip_prefix("//! ")).collect();
        let commands = about.join(" ");
        let mut runs = commands.split('`').filter(|part| part.starts_with("cargo run "));
        let option = format!("--example {name} ");
        assert!(runs.any(|command| command.contains(&option)), "{path} has {commands:?}");
        let is_named = [format!("`{name}`"), format!("examples/{name} ")];
        assert!(is_named.iter().any(|words| readme.contains(words)), "{name} is in no README");
    }
}

/// Returns `true` if `source` has a test of this name, written out or as a row of a macro.
fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        let is_function = line.starts_with(&format!("fn {name}("));
        is_function && attributes.into_iter().any(|line| *line == "#[test]")
            || line.starts_with(&format!("{name}: \""))
    })
}

/// Returns the file of the module with this path, of the tests of this package.
fn module(module: &str) -> Option<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let module = module.replace("::", "/");
    let files = ["kernel", "peers"]
        .iter()
        .flat_map(|target| [format!("{target}/{module}.rs"), format!("{target}/{module}/mod.rs")]);
    files.into_iter().find_map(|file| fs::read_to_string(tests.join(file)).ok())
}

/// Returns every Rust file under a folder of the workspace: its path in that folder, and its text.
fn files(folder: &str) -> Vec<(String, String)> {
    files_with(folder, "rs")
}

/// Returns the number of lines of the unit tests that a source file has in itself.
fn inline_test_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.windows(2).position(|pair| {
        let tests = pair[0].starts_with("#[cfg(test") || pair[0].starts_with("#[cfg(all(test");
        tests && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    });
    start.map_or(0, |start| lines.len() - start)
}

/// Checks the lengths of source files. CONTRIBUTING.md has the reason of each limit.
#[test]
fn source_files_are_short() {
    let mut lengths = Vec::new();
    for folder in ["rdmacm/src", "verbs-core", "tools"] {
        for (path, text) in files_with(folder, "rs") {
            let lines = text.lines().count();
            assert!(lines < 600, "{folder}/{path} has {lines} lines: split it by purpose");
            let tests = inline_test_lines(&text);
            assert!(tests <= 35, "{folder}/{path} has {tests} lines of tests: give them a file");
            lengths.push(lines);
        }
    }
    lengths.sort_unstable();
    assert!(lengths.len() > 400, "{} files", lengths.len());
    let median = lengths[lengths.len() / 2];
    assert!(median < 120, "half of the source files have {median} lines or more");
}

#[test]
fn long_inline_tests_are_found() {
    let code = "fn f() {}\n";
    let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    fn g() {}\n".repeat(40));
    assert_eq!(inline_test_lines(&format!("{code}{tests}")), 43);
    assert_eq!(inline_test_lines(&format!("{code}#[cfg(test)]\nmod tests;\n")), 0);
}

/// Returns every file with this extension under a folder, like [`files`].
fn files_with(folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut files = Vec::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder);
    let mut directories = vec![source.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("read a directory") {
            let path = entry.expect("read an entry").path();
            if path.is_dir() {
                // `fuzz/target` has the build output of cargo fuzz.
                directories.extend((!path.ends_with("fuzz/target")).then_some(path));
            } else if path.extension().is_some_and(|found| found == extension) {
                let text = fs::read_to_string(&path).expect("read a file");
                let path = path.strip_prefix(&source).expect("the path should be below the folder");
                files.push((path.to_str().expect("a plain name").to_owned(), text));
            }
        }
    }
    files
}

/// Returns the text of every file of the library.
fn library() -> String {
    let all = ["rdmacm/src", "verbs-core/src"].map(files);
    all.into_iter().flatten().map(|(_, text)| text).collect()
}

/// Returns `true` if a file is one that may have `unsafe` blocks.
fn opens_unsafe_code(text: &str) -> bool {
    let text: String = text.split_whitespace().collect();
    ["allow", "expect", "warn"].iter().any(|level| text.contains(&format!("[{level}(unsafe_code")))
}

#[test]
fn audit_lists_every_unsafe_file() {
    let audit = include_str!("../../SECURITY.md");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once("` |")?.0.to_owned());
    let mut listed: Vec<String> = audit.lines().filter_map(row).collect();
    let mut open = Vec::new();
    let core = files("verbs-core/src").into_iter();
    let core = core.map(|(path, text)| (format!("verbs-core/{path}"), text));
    for (path, text) in files("rdmacm/src").into_iter().chain(core) {
        if opens_unsafe_code(&text) {
            assert!(text.contains("//! # Safety"), "{path} has no `# Safety` section");
            open.push(path);
        }
    }
    assert!(open.len() > 10, "{open:?}");
    for folder in ["rdmacm/examples", "tests", "tools"] {
        let unsafe_ones = files(folder).into_iter().filter(|(_, text)| opens_unsafe_code(text));
        open.extend(unsafe_ones.map(|(path, _)| format!("{folder}/{path}")));
    }
    for files in [&mut listed, &mut open] {
        files.sort();
    }
    assert_eq!(listed, open, "SECURITY.md and the repository");
}

#[test]
fn semantics_name_existing_tests() {
    let library = library();
    let table = include_str!("../SEMANTICS.md");
    let mut count = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| #")) {
        let shown_by = row.split('|').nth(4).expect("a last column");
        for test in shown_by.split('`').skip(1).step_by(2) {
            let is_there = match test.rsplit_once("::") {
                Some((file, name)) => module(file).is_some_and(|source| has_test(&source, name)),
                None => has_test(&library, test),
            };
            assert!(is_there, "there is no test {test}");
            count += 1;
        }
        assert!(shown_by.contains('`'), "{row} should name a test");
    }
    assert!(count >= 28, "{count} tests");
}

#[test]
fn test_lookup_finds_functions_and_rows() {
    let source = "    #[test]\n    #[ignore]\n    fn here() {}\n\nfn helper() {}\nrow: \"role\"\n";
    assert!(has_test(source, "here") && has_test(source, "row"));
    assert!(!has_test(source, "helper") && !has_test(source, "her") && !has_test(source, "role"));
}

/// The functions of `rdma_cma.h` and `rdma_verbs.h`.
const FUNCTIONS: &str = "
    accept ack_cm_event bind_addr connect create_ep create_event_channel create_id create_qp create_qp_ex create_srq
    create_srq_ex dereg_mr destroy_ep destroy_event_channel destroy_id destroy_qp destroy_srq disconnect establish
    event_str free_devices freeaddrinfo get_cm_event get_devices get_dst_port get_local_addr get_peer_addr
    get_recv_comp get_remote_ece get_request get_send_comp get_src_port getaddrinfo init_qp_attr join_multicast
    join_multicast_ex leave_multicast listen migrate_id notify post_read post_readv post_recv post_recvv post_send
    post_sendv post_ud_send post_write post_writev query_addrinfo reg_msgs reg_read reg_write reject reject_ece
    resolve_addr resolve_addrinfo resolve_route set_local_ece set_option seterrno write_cm_event";

#[test]
fn library_has_alias_for_each_c_function() {
    let library = library();
    for name in FUNCTIONS.split_whitespace() {
        let alias = format!("#[doc(alias = \"rdma_{name}\")]");
        assert!(library.contains(&alias), "nothing has the name rdma_{name}");
    }
}
